"""A node of a training that Ray placed: an actor that keeps one trainer, with the run's folder in sight or without it.

It works as long as node 0 asks for its word. Without a question for `train.node_timeout` seconds it ends by itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import socket
import time
from pathlib import Path

import webgym_cli
from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, WebGymError
from webgym_cli.jobs.process import Job
from webgym_cli.jobs.ray_cluster import wait_for_file
from webgym_cli.records.base import Record
from webgym_cli.train import working_dir as partial
from webgym_cli.train.failure import is_peer_loss, trainer_error
from webgym_cli.train.nodes.status_files import Launch, NodeWord
from webgym_cli.train.nodes.transfer import Cargo, Depot, Parcel, read_piece
from webgym_cli.train.process_env import child_environment
from webgym_cli.venvs.locate import role_home, role_python

MARKER_SECONDS = 5.0
"""How long a marker file may take to be seen: network file systems show new files late."""


class Posting(Record):
    """What a node is told first."""

    rank: int
    root: str
    """The run's folder on node 0."""
    marker: str
    """A file there that was just written: who sees it shares the file system. Empty: the node is to work apart."""
    settings: Settings


class Arrival(Record):
    """What it answers."""

    host: str
    pid: int
    version: str
    """Of webgym there."""
    sees: bool
    """Whether it sees the run's folder."""
    fault: str = ""
    """Why it can't take part."""


class Made(Record):
    """A file that the trainer there left beside node 0's checkpoint."""

    path: str
    """Relative to the training's folder."""
    size: int


class Report(Record):
    """What a node says when it is asked."""

    word: NodeWord
    made: tuple[Made, ...] = ()
    """Files of its newest checkpoints, each written to its end; none where it works in the run's own folder."""


class TrainNode:
    """What Ray makes an actor of. Its methods are called by node 0 only, with JSON."""

    def __init__(self) -> None:
        self._job: Job | None = None
        self._beginning = asyncio.Lock()
        self._folder: Path | None = None
        self._depot: Depot | None = None
        self._beat = 0
        self._asked_at = time.monotonic()
        self._lease: asyncio.Task[None] | None = None

    async def arrive(self, posting: str) -> str:
        """Say who and where this is, and whether the run's folder is in sight."""
        self._posting = given = Posting.model_validate_json(posting)
        fault = ""
        try:
            self._python = role_python(given.settings, "train")
        except WebGymError as error:
            fault = f"{error}; {error.hint}" if error.hint else str(error)
        sees = bool(given.marker) and await wait_for_file(Path(given.marker), MARKER_SECONDS)
        if not sees:
            key = hashlib.sha256(f"{given.root} {given.rank}".encode()).hexdigest()[:16]
            self._depot = await asyncio.to_thread(Depot, role_home() / "nodes" / key)
        self._word = NodeWord(command="", host=socket.gethostname(), pid=os.getpid(), rank=given.rank)
        arrival = Arrival(
            host=self._word.host, pid=self._word.pid, version=webgym_cli.__version__, sees=sees, fault=fault
        )
        return arrival.model_dump_json()

    async def missing(self, cargo: str) -> list[str]:
        """Return the parcels that are not here yet, as JSON."""
        found = await asyncio.to_thread(self._own_depot.missing, Cargo.model_validate_json(cargo))
        return [parcel.model_dump_json() for parcel in found]

    async def put(self, parcel: str, offset: int, piece: bytes) -> None:
        """Take a piece of a file."""
        await asyncio.to_thread(self._own_depot.put, Parcel.model_validate_json(parcel), offset, piece)

    async def begin(self, launch: str, cargo: str) -> None:
        """Start the trainer, once; `cargo` is empty where the run's folder is in sight."""
        self._asked_at = time.monotonic()
        async with self._beginning:
            if self._job is None:
                if cargo:
                    self._folder = await asyncio.to_thread(self._own_depot.lay_out, Cargo.model_validate_json(cargo))
                self._start(Launch.model_validate_json(launch))

    def _start(self, given: Launch) -> None:
        folder, rank = self._folder or Path(given.folder), self._posting.rank
        env = given.env | given.rendezvous(rank) | {"HF_DATASETS_CACHE": str(folder / f"datasets_cache.{rank}")}
        self._job = Job.spawn(
            given.argv(self._python),
            env=child_environment(env, self._posting.settings, self._python) | {"WANDB_DIR": str(folder)},
            log=(self._folder or Path(given.logs)) / f"train.node-{rank}.log",
            cwd=folder,
            grace=self._posting.settings.train.stop_grace,
        )
        self._word = self._word.model_copy(update={"command": given.command, "training": given.training})
        self._lease = asyncio.create_task(self._keep_lease())

    async def report(self) -> str:
        """Say how it goes."""
        self._asked_at = time.monotonic()
        self._beat += 1
        facts: dict[str, object] = {"beat": self._beat}
        if self._job is not None and (code := self._job.poll()) is not None:
            message = str(trainer_error(code, self._job.log)) if code else ""
            facts |= {"code": code, "message": message, "echo": bool(code) and is_peer_loss(code, self._job.log)}
        self._word = self._word.model_copy(update=facts)
        return Report(word=self._word, made=tuple(await asyncio.to_thread(self._made))).model_dump_json()

    async def get(self, path: str, offset: int) -> bytes:
        """Return a piece of a file that `report` told of."""
        self._asked_at = time.monotonic()
        return await asyncio.to_thread(read_piece, (self._folder or Path()) / path, offset)

    async def end(self) -> None:
        """Stop the trainer."""
        if self._job is not None:
            await self._job.stop()

    @property
    def _own_depot(self) -> Depot:
        if self._depot is None:
            raise JobError(f"node {self._posting.rank} sees the run's folder: nothing is sent to it")
        return self._depot

    def _made(self) -> list[Made]:
        """Return the whole files of torch in the two newest checkpoints; older ones are dropped here."""
        if self._folder is None:
            return []
        found = partial.numbered_checkpoints(self._folder)
        newest = found[:2]
        for older in found[2:]:
            shutil.rmtree(older, ignore_errors=True)
        files = [path for folder in newest for path in folder.rglob("*.pt*") if partial.is_whole_archive(path)]
        return [Made(path=str(path.relative_to(self._folder)), size=path.stat().st_size) for path in sorted(files)]

    async def _keep_lease(self) -> None:
        # Nobody tells that nothing was asked.
        while time.monotonic() - self._asked_at < self._posting.settings.train.node_timeout:  # noqa: ASYNC110
            await asyncio.sleep(1)
        await self.end()
        os._exit(JobError.exit_code)
