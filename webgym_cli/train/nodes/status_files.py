"""What the nodes of one training tell each other over their common file system.

Each file has one writer, who replaces it by rename every few seconds: that it changes is the sign of life. Clocks are
never compared, since they differ from node to node; each reader counts the seconds itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import ValidationError

from webgym_cli.errors import StoreError
from webgym_cli.records.base import Record
from webgym_cli.store.run import RunDir
from webgym_cli.train.command import trainer_command
from webgym_cli.util.files import read_json, write_json

HEAD = "head.json"
LAUNCH = "launch.json"


class HeadWord(Record):
    """`nodes/head.json`: the command that node 0 runs; kept alive while it does, and left there with its end."""

    command: str
    """Names this very command: another one, the same repeated included, has another name."""
    beat: int = 0
    """Counts the writings."""
    host: str
    pid: int
    words: str
    """The command as it is shown to people."""
    nodes: int
    """How many nodes it expects, node 0 included."""
    code: int | None = None
    """Its exit code, once it has ended."""
    message: str = ""
    """Why it ended before its time."""


class NodeWord(Record):
    """`nodes/node-<rank>.json`: what another node does."""

    command: str
    """The command of node 0 that it follows."""
    beat: int = 0
    host: str
    pid: int
    rank: int
    training: str = ""
    """The training that it takes part in, or took part in last."""
    code: int | None = None
    """Exit status of its part of that training; None while it runs."""
    message: str = ""
    """Why its part failed, or why it can't take part."""
    echo: bool = False
    """Whether that only says that another node was lost."""
    gone: str = ""
    """Why it does not follow any more."""

    @property
    def name(self) -> str:
        """How people are told of it."""
        return f"node {self.rank} ({self.host})"


class Launch(Record):
    """`nodes/launch.json`: a training that node 0 begins, as the other nodes join it; removed with its end."""

    command: str
    """The command of node 0: a launch of another one is stale."""
    training: str
    """Names this very launch."""
    folder: str
    """Where the training works: the same path on each node."""
    algorithm: str
    """How the policy learns: which trainer runs."""
    launch_file: str
    """The configuration's name in `folder`."""
    env: dict[str, str]
    """The trainer's variables, without what differs from node to node; no secret."""
    processes: int
    """Trainer processes on each node."""
    nodes: int
    address: str
    """The rendezvous on node 0."""
    port: int
    logs: str
    """The folder for the nodes' logs."""

    def rendezvous(self, rank: int) -> dict[str, str]:
        """Return the variables by which a node's torchrun finds the others: it reads those with PET_ by itself, where
        LLaMA-Factory calls it by the others."""
        found = {
            "NNODES": str(self.nodes),
            "NODE_RANK": str(rank),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
            "NPROC_PER_NODE": str(self.processes),
        }
        return found | {f"PET_{name}": value for name, value in found.items()}

    def argv(self, python: Path) -> tuple[str, ...]:
        """Return the command of a node's trainer; `python`: the train role's interpreter there."""
        return trainer_command(python, self.algorithm, self.launch_file, processes=self.processes, nodes=self.nodes)


W = TypeVar("W", HeadWord, NodeWord)
R = TypeVar("R", bound=Record)


def head_file(run: RunDir) -> Path:
    """Return node 0's file."""
    return run.nodes / HEAD


def node_file(run: RunDir, rank: int) -> Path:
    """Return another node's file."""
    return run.nodes / f"node-{rank}.json"


def launch_file(run: RunDir) -> Path:
    """Return the file by which node 0 announces a training."""
    return run.nodes / LAUNCH


def read_word(path: Path, kind: type[R]) -> R | None:
    """Return what a file says, or None where it is missing, or of another version of webgym."""
    try:
        return kind.model_validate(read_json(path))
    except (StoreError, ValidationError):
        return None


def beat_seconds(timeout: float) -> float:
    """Return the time between two beats, when a node is given up after `timeout` seconds of silence."""
    return min(2.0, timeout / 10)


class Voice(Generic[W]):
    """Keeps a file alive in a thread of its own: long work in the foreground is no silence."""

    def __init__(self, path: Path, word: W, timeout: float) -> None:
        """Begin; others give us up after `timeout` seconds of silence. Raises `StoreError`."""
        self._path = path
        self._word: W = word
        self._every = beat_seconds(timeout)
        self._turn = threading.Lock()
        self._over = threading.Event()
        self._write()
        self._thread = threading.Thread(target=self._beat, name="node-voice", daemon=True)
        self._thread.start()

    @property
    def word(self) -> W:
        """What is being told."""
        return self._word

    def tell(self, **facts: object) -> None:
        """Tell at once what changed. Raises `StoreError`."""
        with self._turn:
            self._word = self._word.model_copy(update=facts)
        self._write()

    def close(self, **facts: object) -> None:
        """Tell the last facts and fall silent."""
        self._over.set()
        self._thread.join()
        with suppress(StoreError):  # the others are left to count our silence
            self.tell(**facts)

    def _beat(self) -> None:
        while not self._over.wait(self._every):
            with suppress(StoreError):  # a beat that the disk refuses is one that was not heard
                self._write()

    def _write(self) -> None:
        with self._turn:
            self._word = self._word.model_copy(update={"beat": self._word.beat + 1})
            write_json(self._path, self._word.model_dump(mode="json"))


class Ear(Generic[W]):
    """Reads another node's file again and again, and knows for how long it has not changed."""

    def __init__(self, path: Path, kind: type[W], clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._kind: type[W] = kind
        self._clock = clock
        self._since = clock()
        self._last: W | None = read_word(path, kind)
        self.changes = 0
        """How often something new was heard; what was there at the beginning may be long dead and does not count."""

    def hear(self) -> W | None:
        """Return what was said last; None before the first word."""
        heard = read_word(self._path, self._kind)
        if heard is not None and heard != self._last:
            self._last, self._since = heard, self._clock()
            self.changes += 1
        return self._last if self.changes else None

    @property
    def stale(self) -> W | None:
        """What was there at the beginning and has not changed since."""
        return None if self.changes else self._last

    @property
    def silent(self) -> float:
        """Seconds since the last change, or since we began to listen."""
        return self._clock() - self._since
