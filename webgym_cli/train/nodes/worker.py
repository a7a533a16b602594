"""A node other than node 0: takes part in the trainings of node 0's command and ends with it."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, StoreError, UsageError
from webgym_cli.jobs.process import Job
from webgym_cli.jobs.ray_cluster import as_own_error, wait_for_file
from webgym_cli.jobs.workers import cancel_tasks
from webgym_cli.records.base import Record
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.store.run import RunDir
from webgym_cli.train.extension_locks import remove_stale_locks
from webgym_cli.train.failure import trainer_error
from webgym_cli.train.nodes.messages import (
    LINE_LIMIT,
    POLL_SECONDS,
    CoordinatorAddress,
    NodeError,
    NodeHello,
    NodeLaunch,
    NodeStatus,
    Order,
)
from webgym_cli.train.nodes.topology import NodeTopology, build_rendezvous
from webgym_cli.train.process_env import child_environment
from webgym_cli.train.registry import find_backend
from webgym_cli.util.files import read_json
from webgym_cli.venvs.locate import role_python

# Deadline for a file to become visible: network file systems show new files late.
MARKER_SECONDS = 5.0
# Deadline for an answer at node 0's address, which may be a killed command's.
JOIN_SECONDS = 5.0
_AGAIN = "run the same command again on every node: the training goes on from its last checkpoint"


async def run_worker_node(run: RunDir, settings: Settings, topology: NodeTopology, sink: EventSink) -> tuple[int, str]:
    """Take part in every training of node 0's command on this run; return its exit code and why it failed.

    Raises `RunLockedError` when another process has this rank, `JobError` when node 0 is lost or not heard from for
    `train.node_timeout` seconds, `UsageError` when the nodes disagree about their number.
    """

    def say(what: str) -> None:
        sink(make_event("node", rank=topology.rank, message=f"node {topology.rank} {what}"))

    role_python(settings, "train")  # a missing trainer is reported before node 0 waits for us
    say("waits for node 0")
    node_0 = await _connect(run, topology, settings.train.node_timeout)
    launch: NodeLaunch | None = None
    # In the background: status messages must continue while a trainer is started or stopped.
    training: asyncio.Task[None] | None = None
    try:
        while (order := await node_0.exchange(_describe(training))).end is None:
            if order.launch != launch and (training is None or training.done()):
                launch = order.launch
                training = asyncio.create_task(run_trainer(topology, launch, settings, say)) if launch else None
            elif order.launch != launch and training is not None and not training.cancelling():
                training.cancel()
            await asyncio.sleep(POLL_SECONDS)
        return order.end
    finally:
        node_0.writer.close()
        if training is not None:
            await cancel_tasks(training)


def _describe(training: asyncio.Task[None] | None) -> NodeStatus:
    if training is None or (training.done() and training.cancelled()):
        return NodeStatus()
    if not training.done():
        return NodeStatus(state="busy")
    if (error := training.exception()) is None:
        return NodeStatus(state="done")
    return NodeStatus(state="failed", error=NodeError.of(as_own_error(error)))


@dataclass(slots=True)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    name: str
    """Node 0 in messages."""
    silence: float

    async def exchange(self, message: Record) -> Order:
        """Send a message and return the answer. Raises `JobError` when node 0 is lost."""
        try:
            self.writer.write(message.model_dump_json().encode() + b"\n")
            async with asyncio.timeout(self.silence):
                await self.writer.drain()
                return Order.model_validate_json(await self.reader.readuntil())
        except TimeoutError:
            silence = f"is not heard from for {self.silence:g} s (train.node_timeout)"
            raise JobError(f"{self.name} {silence}", hint=_AGAIN) from None
        except (OSError, asyncio.IncompleteReadError):
            raise JobError(f"{self.name} was lost: its process has ended", hint=_AGAIN) from None


async def _connect(run: RunDir, topology: NodeTopology, seconds: float) -> _Connection:
    """Join node 0. Raises `JobError` where it is not heard from in time, and the error with which it refuses us."""
    host, pid, deadline = socket.gethostname(), os.getpid(), time.monotonic() + seconds
    while time.monotonic() < deadline:
        # In a file left by a killed command the port may be closed, or belong to another program.
        with suppress(OSError, ValueError, StoreError, JobError):
            node_0 = CoordinatorAddress.model_validate(read_json(run.coordinator))
            hello = NodeHello(token=node_0.token, rank=topology.rank, nodes=topology.count, host=host, pid=pid)
            async with asyncio.timeout(min(JOIN_SECONDS, seconds)):
                streams = await asyncio.open_connection(node_0.address, node_0.port, limit=LINE_LIMIT)
                connection = _Connection(*streams, f"node 0 ({node_0.host})", seconds)
                try:
                    if refusal := (await connection.exchange(hello)).refusal:
                        raise refusal.to_error(str(run.root))
                except BaseException:
                    connection.writer.close()
                    raise
                return connection
        await asyncio.sleep(POLL_SECONDS)
    raise JobError(
        f"node 0 is not heard from for {seconds:g} s (train.node_timeout)",
        hint=f"NODE_RANK=0 must run the same command on {run.root}; {_AGAIN}",
    )


async def run_trainer(
    topology: NodeTopology, launch: NodeLaunch, settings: Settings, say: Callable[[str], None]
) -> None:
    """Run this node's trainer to its end. Raises `WebGymError`; when cancelled, the trainer ends first."""
    folder, rank, log = Path(launch.folder), topology.rank, Path(launch.logs) / f"train.node-{topology.rank}.log"
    if not await wait_for_file(folder / launch.launch_file, MARKER_SECONDS):
        raise UsageError(f"{folder} is not there: mount the run at the same path on every node")
    python = role_python(settings, "train")
    # Several nodes must not build one datasets cache in a shared folder at once.
    own = build_rendezvous(NODE_RANK=rank) | {"HF_DATASETS_CACHE": str(folder / f"datasets_cache.{rank}")}
    env = child_environment(launch.env | own, settings, python) | {"WANDB_DIR": launch.logs}
    for lock in await asyncio.to_thread(remove_stale_locks, env):
        say(f"{lock}: a build was killed and left it; removed")
    say(f"takes part in a training of {topology.count} nodes; log: {log}")
    command = find_backend(launch.algorithm).command
    argv = command(python, launch.launch_file, processes=launch.processes, nodes=topology.count)
    code = await Job.run(argv, env=env, log=log, cwd=folder, grace=settings.train.stop_grace)
    if code != 0:
        error = trainer_error(code, log)
        say(str(error))
        error.hint = ""  # that of node 0 continues the whole training
        raise error
    say("its part of the training is done")
