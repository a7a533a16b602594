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
from webgym_cli.records.base import Record
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.store.run import RunDir
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
    receive,
    send,
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
    try:
        while (order := await connection.exchange(trainer.status())).end is None:
            trainer.follow(order.launch)
            await asyncio.sleep(POLL_SECONDS)
        return order.end
    finally:
        connection.writer.close()
        await trainer.stop()


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str, seconds: float) -> None:
        self.reader, self.writer, self.name, self.seconds = reader, writer, name, seconds

    async def exchange(self, message: Record) -> Order:
        """Send a message and return the answer. Raises `JobError` when node 0 is lost."""
        try:
            await send(self.writer, message)
            return Order.model_validate_json(await receive(self.reader, self.seconds))
        except TimeoutError:
            silence = f"is not heard from for {self.seconds:g} s (train.node_timeout)"
            raise JobError(f"{self.name} {silence}", hint=_AGAIN) from None
        except OSError:
            raise JobError(f"{self.name} was lost: its process has ended", hint=_AGAIN) from None


async def _connect(
    run: RunDir, patience: float, topology: NodeTopology, address: CoordinatorAddress | None
) -> _Connection:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        # A file that a killed command left names a port where nothing answers, or something else.
        with suppress(OSError, ValueError, StoreError, JobError):
            coordinator = address or CoordinatorAddress.model_validate(read_json(coordinator_file(run)))
            return await _join(coordinator, run, patience, topology)
        await asyncio.sleep(POLL_SECONDS)
    raise JobError(
        f"node 0 is not heard from for {patience:g} s (train.node_timeout)",
        hint=f"NODE_RANK=0 must run the same command on {run.root}; {_AGAIN}",
    )


async def _join(node: CoordinatorAddress, run: RunDir, patience: float, topology: NodeTopology) -> _Connection:
    hello = NodeHello(
        token=node.token, rank=topology.rank, nodes=topology.count, host=socket.gethostname(), pid=os.getpid()
    )
    async with asyncio.timeout(min(5.0, patience)):
        reader, writer = await asyncio.open_connection(node.address, node.port, limit=LINE_LIMIT)
        connection = _Connection(reader, writer, f"node 0 ({node.host})", patience)
        try:
            welcome = await connection.exchange(hello)
            if welcome.error:
                hint = "export the same NNODES, and a NODE_RANK of its own, on every node"
                raise getattr(errors, welcome.error)(f"{run.root}: {welcome.message}", hint=hint)
        except BaseException:
            writer.close()
            raise
        return connection


class NodeTrainer:
    """This node's trainer: the one that node 0 wants now, or none."""

    def __init__(self, rank: int, settings: Settings, say: Callable[[str], None]) -> None:
        self._rank, self._settings, self._say = rank, settings, say
        self._launch: NodeLaunch | None = None
        self._job: Job | None = None
        self._ended: NodeStatus | None = None
        self._change: asyncio.Task[None] | None = None

    def follow(self, launch: NodeLaunch | None) -> None:
        """Start or stop what node 0 wants now, in the background: the connection must not fall silent."""
        if launch != self._launch and not self._is_changing:
            self._change = asyncio.create_task(self._switch(launch))

    def status(self) -> NodeStatus:
        """Return the state of the trainer."""
        if self._is_changing:
            return NodeStatus(busy=True)
        if self._job is not None and self._ended is None and (code := self._job.poll()) is not None:
            self._ended = _describe_end(code, self._job.log)
            self._say(self._ended.message or "its part of the training is done")
        return self._ended or NodeStatus(busy=self._job is not None)

    async def stop(self) -> None:
        """End the trainer. Safe to repeat."""
        if self._change is not None:
            await asyncio.wait((self._change,))
        await self._switch(None)

    @property
    def _is_changing(self) -> bool:
        return self._change is not None and not self._change.done()

    async def _switch(self, launch: NodeLaunch | None) -> None:
        job, self._job = self._job, None
        if job is not None:
            await job.stop()
        self._launch, self._ended = launch, None
        try:
            if launch is not None:
                await self._start(launch)
        except WebGymError as error:
            self._ended = NodeStatus(error=type(error).__name__, message=str(error), hint=error.hint)

    async def _start(self, launch: NodeLaunch) -> None:
        folder = Path(launch.folder)
        if not await wait_for_file(folder / launch.launch_file, MARKER_SECONDS):
            raise UsageError(f"{folder} is not there: mount the run at the same path on every node")
        python = role_python(self._settings, "train")
        # Several nodes must not build one datasets cache in a shared folder at once.
        own = launch.rendezvous(self._rank) | {"HF_DATASETS_CACHE": str(folder / f"datasets_cache.{self._rank}")}
        command = find_backend(launch.algorithm).command
        self._job = Job.spawn(
            command(python, launch.launch_file, processes=launch.processes, nodes=launch.nodes),
            env=child_environment(launch.env | own, self._settings, python) | {"WANDB_DIR": launch.logs},
            log=Path(launch.logs) / f"train.node-{self._rank}.log",
            cwd=folder,
            grace=self._settings.train.stop_grace,
        )
        self._say(f"takes part in a training of {launch.nodes} nodes; log: {self._job.log}")


def _describe_end(code: int, log: Path) -> NodeStatus:
    if code == 0:
        return NodeStatus(done=True)
    message, secondary = str(trainer_error(code, log)), is_peer_loss(code, log)
    return NodeStatus(error="JobError", message=message, secondary=secondary)
