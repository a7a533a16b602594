"""A node that does not lead: it takes part in each training of the command that node 0 runs, and ends with it.

It writes nothing into the run but its sign of life and the log of its trainer.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, RunLockedError, StoreError, UsageError, WebGymError
from webgym_cli.jobs.process import KILL_MARGIN, Job
from webgym_cli.records.events import EventSink
from webgym_cli.store.run import RunDir
from webgym_cli.train.failure import is_peer_loss, trainer_error
from webgym_cli.train.nodes.status_files import (
    Ear,
    HeadWord,
    Launch,
    NodeWord,
    Voice,
    head_file,
    launch_file,
    node_file,
    read_word,
)
from webgym_cli.train.nodes.topology import Place
from webgym_cli.train.process_env import child_environment
from webgym_cli.venvs.locate import role_python

POLL_SECONDS = 0.2
HANDOVER = KILL_MARGIN + 5.0
"""Seconds, beside the trainer's grace, in which one who followed a command that is gone has left."""
_AGAIN = "run the same command again on every node: the training goes on from its last checkpoint"


@dataclass(frozen=True, slots=True)
class Ending:
    """How node 0's command ended."""

    code: int
    """Its exit code."""
    message: str
    """Why it ended before its time; empty when it was done."""


@dataclass(slots=True)
class Part:
    """This node's part of one training."""

    launch: Launch
    job: Job | None = None
    """None until the training's folder has come into sight."""
    told: bool = False
    """Whether node 0 was told how it ended."""


async def follow(run: RunDir, settings: Settings, place: Place, sink: EventSink) -> Ending:
    """Take part in every training of the command that node 0 runs on this run, and return how that ended.

    Raises `RunLockedError` when another process follows under this rank, `JobError` when node 0 is not heard from for
    `train.node_timeout` seconds, `UsageError` when the nodes disagree about their number or LLaMA-Factory is missing.
    """
    role_python(settings, "train")
    async with _one_follower(run, settings, place):
        return await Follower(run, settings, place, sink).execute()


@asynccontextmanager
async def _one_follower(run: RunDir, settings: Settings, place: Place) -> AsyncIterator[None]:
    """Hold this node's rank."""
    try:
        run.nodes.mkdir(parents=True, exist_ok=True)
        lock = FileLock(run.nodes / f"node-{place.rank}.lock")
        await asyncio.to_thread(lock.acquire, timeout=settings.train.stop_grace + HANDOVER)
    except Timeout:
        other = read_word(node_file(run, place.rank), NodeWord)
        holder = f"process {other.pid} on {other.host}" if other else "another process"
        raise RunLockedError(
            f"{run.root}: {holder} is node {place.rank} already", hint="give every node a NODE_RANK of its own"
        ) from None
    except OSError as error:
        raise StoreError(f"{run.nodes}: can't be written: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()


@dataclass(slots=True)
class Follower:
    """Use `follow`."""

    run: RunDir
    settings: Settings
    place: Place
    sink: EventSink
    _voice: Voice[NodeWord] | None = None
    _part: Part | None = None
    _head: Ear[HeadWord] = field(init=False)

    def __post_init__(self) -> None:
        """Listen to node 0 from now on: what its file says already may be of a command that is dead."""
        self._head = Ear(head_file(self.run), HeadWord)

    async def execute(self) -> Ending:
        """Follow to the end."""
        first = await self._first_word()
        word = NodeWord(command=first.command, host=socket.gethostname(), pid=os.getpid(), rank=self.place.rank)
        self._voice = Voice(node_file(self.run, self.place.rank), word, self.settings.train.node_timeout)
        self._say(f"follows `webgym {first.words}` (process {first.pid} on {first.host})")
        gone = "it was stopped"
        try:
            while (head := self._hear(first)).code is None:
                await self._attend(head)
                await asyncio.sleep(POLL_SECONDS)
            gone = "node 0 has ended"
            return Ending(head.code, head.message)
        except WebGymError as error:
            gone = str(error)
            raise
        finally:
            try:
                await self._leave_training()
            finally:
                await asyncio.to_thread(self._voice.close, gone=gone)

    async def _first_word(self) -> HeadWord:
        """Wait until node 0 says something."""
        self._say("waits for node 0")
        while (head := self._head.hear()) is None:
            if self._head.silent > self.settings.train.node_timeout:
                raise self._silence(self._head.stale)
            await asyncio.sleep(POLL_SECONDS)
        if head.nodes != self.place.count:
            raise UsageError(
                f"NNODES is {self.place.count} here and {head.nodes} on node 0 ({head.host})",
                hint="export the same NNODES on every node",
            )
        return head

    def _hear(self, first: HeadWord) -> HeadWord:
        """Return what the command that we follow says now. Raises `JobError` when it is not heard from any more."""
        head = self._head.hear() or first
        if head.command != first.command:
            raise JobError(
                f"node 0 ({first.host}) was lost, and runs another command now: `webgym {head.words}`", hint=_AGAIN
            )
        if head.code is None and self._head.silent > self.settings.train.node_timeout:
            raise self._silence(head)
        return head

    def _silence(self, last: HeadWord | None) -> JobError:
        where = f"node 0 ({last.host})" if last else "node 0"
        message = f"{where} is not heard from for {self.settings.train.node_timeout:g} s (train.node_timeout)"
        if last is not None and last.code is not None:
            message += f"; its last command, `webgym {last.words}`, ended with exit code {last.code} before"
        return JobError(message, hint=f"NODE_RANK=0 must run the same command on {self.run.root}; {_AGAIN}")

    async def _attend(self, head: HeadWord) -> None:
        """Begin what node 0 launches, end what it has ended, tell what became of our part."""
        launch = read_word(launch_file(self.run), Launch)
        if launch is not None and launch.command != head.command:
            launch = None  # left behind by one that was killed
        if self._part is not None and (launch is None or launch.training != self._part.launch.training):
            await self._leave_training()
        if launch is not None:
            if self._part is None:
                self._part = Part(launch)
            self._work(self._part)

    def _work(self, part: Part) -> None:
        """Start our part once its folder is in sight; tell when it has ended."""
        if part.told:
            return
        if part.job is None:
            self._start(part)
        elif (code := part.job.poll()) is not None:
            part.told = True
            message = str(trainer_error(code, part.job.log)) if code else ""
            self._tell(code=code, message=message, echo=bool(code) and is_peer_loss(code, part.job.log))
            self._say(message or "its part of the training is done")

    def _start(self, part: Part) -> None:
        launch, rank = part.launch, self.place.rank
        folder = Path(launch.folder)
        if not (folder / launch.launch_file).is_file():  # network file systems show new files late
            self._tell(message=f"{folder} is not there: mount the run at the same path on every node")
            return
        python = role_python(self.settings, "train")
        env = launch.env | launch.rendezvous(rank) | {"HF_DATASETS_CACHE": str(folder / f"datasets_cache.{rank}")}
        part.job = Job.spawn(
            launch.argv(python),
            env=child_environment(env, self.settings, python) | {"WANDB_DIR": launch.logs},
            log=Path(launch.logs) / f"train.node-{rank}.log",
            cwd=folder,
            grace=self.settings.train.stop_grace,
        )
        self._tell(training=launch.training, code=None, message="", echo=False)
        self._say(f"takes part in a training of {launch.nodes} nodes; log: {part.job.log}")

    async def _leave_training(self) -> None:
        part, self._part = self._part, None
        if part is not None and part.job is not None:
            await part.job.stop()

    def _tell(self, **facts: object) -> None:
        """Tell node 0 what it does not know yet."""
        if self._voice and any(getattr(self._voice.word, name) != value for name, value in facts.items()):
            self._voice.tell(**facts)

    def _say(self, what: str) -> None:
        self.sink({"event": "node", "rank": self.place.rank, "message": f"node {self.place.rank} {what}"})
