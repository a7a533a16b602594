"""A node other than node 0: takes part in the trainings of node 0's command and ends with it."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from webgym_cli import errors
from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, StoreError, UsageError, WebGymError
from webgym_cli.jobs.process import Job
from webgym_cli.jobs.ray_cluster import wait_for_file
from webgym_cli.jobs.workers import cancel_tasks
from webgym_cli.records.base import Record
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.store.run import RunDir
from webgym_cli.train.extension_locks import remove_stale_locks
from webgym_cli.train.failure import is_peer_loss, trainer_error
from webgym_cli.train.nodes.messages import (
    LINE_LIMIT,
    POLL_SECONDS,
    CoordinatorAddress,
    NodeHello,
    NodeLaunch,
    NodeStatus,
    Order,
    coordinator_file,
)
from webgym_cli.train.nodes.topology import NodeTopology
from webgym_cli.train.process_env import child_environment
from webgym_cli.train.registry import find_backend
from webgym_cli.util.files import read_json
from webgym_cli.venvs.locate import role_python

# Deadline for a file to become visible: network file systems show new files late.
MARKER_SECONDS = 5.0
_AGAIN = "run the same command again on every node: the training goes on from its last checkpoint"


async def run_worker_node(
    run: RunDir,
    settings: Settings,
    topology: NodeTopology,
    sink: EventSink,
    address: CoordinatorAddress | None = None,
) -> tuple[int, str]:
    """Take part in every training of node 0's command on this run; return its exit code and why it failed.

    `address`: that of node 0; None: it stands in the run's folder. Raises `RunLockedError` when another process has
    this rank, `JobError` when node 0 is lost or not heard from for `train.node_timeout` seconds, `UsageError` when the
    nodes disagree about their number.
    """

    def say(what: str) -> None:
        sink(make_event("node", rank=topology.rank, message=f"node {topology.rank} {what}"))

    role_python(settings, "train")  # a missing trainer is reported before node 0 waits for us
    say("waits for node 0")
    connection = await _connect(run, settings.train.node_timeout, topology, address)
    trainer = NodeTrainer(topology.rank, settings, say)
    # In the background: the connection must not fall silent while a trainer is started or stopped.
    training = asyncio.create_task(trainer.run())
    try:
        while (order := await connection.exchange(trainer.status)).end is None:
            trainer.wanted = order.launch
            await asyncio.sleep(POLL_SECONDS)
        return order.end
    finally:
        connection.writer.close()
        await cancel_tasks(training)


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str, seconds: float) -> None:
        self.reader, self.writer, self.name, self.seconds = reader, writer, name, seconds

    async def exchange(self, message: Record) -> Order:
        """Send a message and return the answer. Raises `JobError` when node 0 is lost."""
        try:
            self.writer.write(message.model_dump_json().encode() + b"\n")
            async with asyncio.timeout(self.seconds):
                await self.writer.drain()
                return Order.model_validate_json(await self.reader.readuntil())
        except TimeoutError:
            silence = f"is not heard from for {self.seconds:g} s (train.node_timeout)"
            raise JobError(f"{self.name} {silence}", hint=_AGAIN) from None
        except (OSError, asyncio.IncompleteReadError):
            raise JobError(f"{self.name} was lost: its process has ended", hint=_AGAIN) from None


async def _connect(
    run: RunDir, seconds: float, topology: NodeTopology, address: CoordinatorAddress | None
) -> _Connection:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        # A file that a killed command left names a port where nothing answers, or something else.
        with suppress(OSError, ValueError, StoreError, JobError):
            coordinator = address or CoordinatorAddress.model_validate(read_json(coordinator_file(run)))
            return await _join(coordinator, run, seconds, topology)
        await asyncio.sleep(POLL_SECONDS)
    raise JobError(
        f"node 0 is not heard from for {seconds:g} s (train.node_timeout)",
        hint=f"NODE_RANK=0 must run the same command on {run.root}; {_AGAIN}",
    )


async def _join(node: CoordinatorAddress, run: RunDir, seconds: float, topology: NodeTopology) -> _Connection:
    hello = NodeHello(
        token=node.token, rank=topology.rank, nodes=topology.count, host=socket.gethostname(), pid=os.getpid()
    )
    async with asyncio.timeout(min(5.0, seconds)):
        reader, writer = await asyncio.open_connection(node.address, node.port, limit=LINE_LIMIT)
        connection = _Connection(reader, writer, f"node 0 ({node.host})", seconds)
        try:
            answer = await connection.exchange(hello)
            if answer.error:
                hint = "export the same NNODES, and a NODE_RANK of its own, on every node"
                raise getattr(errors, answer.error)(f"{run.root}: {answer.message}", hint=hint)
        except BaseException:
            writer.close()
            raise
        return connection


class NodeTrainer:
    """This node's trainer: the one that node 0 wants now, or none."""

    def __init__(self, rank: int, settings: Settings, say: Callable[[str], None]) -> None:
        self._rank, self._settings, self._say = rank, settings, say
        self.wanted: NodeLaunch | None = None
        """What node 0 wants now."""
        self.status = NodeStatus()
        """The state of the trainer."""

    async def run(self) -> None:
        """Run what is wanted, one training after the other. When cancelled, the trainer ends first."""
        while True:
            launch, self.status = self.wanted, NodeStatus(busy=self.wanted is not None)
            if launch is not None:
                try:
                    self.status = await self._train(launch)
                except WebGymError as error:
                    self.status = NodeStatus(error=type(error).__name__, message=str(error), hint=error.hint)
            while self.wanted == launch:  # noqa: ASYNC110 - the connection sets it
                await asyncio.sleep(POLL_SECONDS)

    async def _train(self, launch: NodeLaunch) -> NodeStatus:
        job = await self._start(launch)
        try:
            while (code := job.poll()) is None:
                if self.wanted != launch:
                    return NodeStatus()
                await asyncio.sleep(POLL_SECONDS)
        finally:
            await job.stop()
        if code == 0:
            self._say("its part of the training is done")
            return NodeStatus(done=True)
        message = str(trainer_error(code, job.log))
        self._say(message)
        return NodeStatus(error="JobError", message=message, secondary=is_peer_loss(code, job.log))

    async def _start(self, launch: NodeLaunch) -> Job:
        folder = Path(launch.folder)
        if not await wait_for_file(folder / launch.launch_file, MARKER_SECONDS):
            raise UsageError(f"{folder} is not there: mount the run at the same path on every node")
        python = role_python(self._settings, "train")
        # Several nodes must not build one datasets cache in a shared folder at once.
        own = launch.rendezvous(self._rank) | {"HF_DATASETS_CACHE": str(folder / f"datasets_cache.{self._rank}")}
        command = find_backend(launch.algorithm).command
        env = child_environment(launch.env | own, self._settings, python) | {"WANDB_DIR": launch.logs}
        for lock in await asyncio.to_thread(remove_stale_locks, env):
            self._say(f"{lock}: a build was killed and left it; removed")
        job = Job.spawn(
            command(python, launch.launch_file, processes=launch.processes, nodes=launch.nodes),
            env=env,
            log=Path(launch.logs) / f"train.node-{self._rank}.log",
            cwd=folder,
            grace=self._settings.train.stop_grace,
        )
        self._say(f"takes part in a training of {launch.nodes} nodes; log: {job.log}")
        return job
