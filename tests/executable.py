"""Drives the executable as its users do, kills it, and sees whether anything of it is left."""

import contextlib
import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil
import pytest

from tests import forked
from webgym_cli.config.model import Settings
from webgym_cli.environments.browser.executable import find_chromium
from webgym_cli.errors import VenvError

PATIENCE = 900.0
"""Seconds that a command may take on a busy machine."""
GONE_WITHIN = 40.0
"""Seconds within which nothing of a killed command may be left: vLLM and the trainer get a grace period."""
MARK = "TEST_MARK_OF_THIS_COMMAND"


class Command:
    """A webgym command at work; its stdout and stderr go to files. `more`: variables of its environment."""

    def __init__(self, folder: Path, *arguments: object, **more: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = uuid.uuid4().hex
        self.out, self.err = folder / f"{name}.out", folder / f"{name}.err"
        self._mark = name.encode()
        self._tree: dict[int, psutil.Process] = {}
        for file in (self.out, self.err):
            file.touch()
        streams = {1: str(self.out), 2: str(self.err)}
        self.process = forked.begin(*arguments, cwd=folder, streams=streams, **more, **{MARK: name})

    def tree(self) -> list[psutil.Process]:
        """All processes below it; they are remembered."""
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                self._tree[child.pid] = child
        return list(self._tree.values())

    def browsers(self) -> list[psutil.Process]:
        """Return the main processes of its Chromiums."""
        processes = []
        for child in self.tree():
            with contextlib.suppress(psutil.Error):
                words = child.cmdline()
                if words and "chrom" in words[0] and not any(word.startswith("--type=") for word in words):
                    processes.append(child)
        return processes

    def until(self, reached: Callable[[], object], pause: float = 0.02) -> None:
        """Wait until something is so; it must be so before the command ends."""
        deadline = time.monotonic() + PATIENCE
        while not reached():
            assert self.process.is_alive(), f"it ended before: {self.err.read_text()[-2000:]}"
            assert time.monotonic() < deadline, self.err.read_text()[-2000:]
            time.sleep(pause)

    def send(self, number: signal.Signals, *, group: bool = False) -> int:
        """Send a signal and return the exit status. Nothing of the command may be left some seconds later."""
        self.tree()
        (os.killpg if group else os.kill)(self.process.pid, number)
        return self.finish()

    def finish(self) -> int:
        """Wait for the end and return the exit status. Nothing of the command may be left."""
        self.process.join(PATIENCE)
        assert self.left() == []
        return self.process.exitcode

    def left(self) -> list[str]:
        """Return what still runs of the command after a while: remembered, or with its mark in the environment."""
        deadline = time.monotonic() + GONE_WITHIN
        while (alive := [process for process in self._ours() if _runs(process)]) and time.monotonic() < deadline:
            time.sleep(0.1)
        return [_described(process) for process in alive]

    def _ours(self) -> list[psutil.Process]:
        marked = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError):
                if self._mark in Path(f"/proc/{process.pid}/environ").read_bytes():
                    marked.append(process)
        return [*self._tree.values(), *marked]


def webgym(folder: Path, *arguments: object, code: int = 0) -> Command:
    """Run a command to its end; it must end with this exit code and leave nothing behind."""
    command = Command(folder, *arguments)
    assert command.finish() == code, command.err.read_text()[-3000:]
    return command


def parts(run: Path, split: str = "train", iteration: int = 0) -> Path:
    return run / f"{split}_trajectories" / f"iteration_{iteration:04d}" / "part-0.jsonl"


def stored(run: Path, split: str = "train", iteration: int = 0) -> bytes:
    """Return the whole stored lines."""
    part = parts(run, split, iteration)
    content = part.read_bytes() if part.exists() else b""
    return content[: content.rfind(b"\n") + 1]


def trajectories(run: Path, split: str = "train", iteration: int = 0) -> list[dict]:
    return [json.loads(line) for line in stored(run, split, iteration).splitlines() if line.strip()]


def finished(run: Path, split: str = "train", iteration: int = 0) -> list[str]:
    """Return the episodes that ended without a failure of infrastructure, in the order of writing."""
    return [
        trajectory["episode"]
        for trajectory in trajectories(run, split, iteration)
        if not trajectory["outcome"]["failure"]
    ]


def failures(run: Path) -> list[str]:
    return [trajectory["outcome"]["failure"] for trajectory in trajectories(run) if trajectory["outcome"]["failure"]]


def content(run: Path) -> dict[str, tuple]:
    """Return what each finished episode holds, times left out."""
    return {
        trajectory["episode"]: (
            trajectory["task"],
            trajectory["seed"],
            trajectory["instruction"],
            trajectory["outcome"]["reward"],
            [(step["action"], step["response"]) for step in trajectory["steps"]],
        )
        for trajectory in trajectories(run)
        if not trajectory["outcome"]["failure"]
    }


def events(run: Path, name: str) -> list[dict]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [event for event in records if event["event"] == name]


def needs_chromium() -> str:
    try:
        return str(find_chromium(Settings().browser))
    except VenvError as error:
        pytest.skip(str(error))


@contextlib.contextmanager
def file_system(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own for the time of the block; skips the test where none can be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "webgym-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Fill a file system with a file and return it."""
    filler = folder / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(512))
    return filler


def alive(pids: Iterable[int]) -> list[int]:
    """Return those of the processes that run."""
    rows = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            rows += [pid] if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE else []
    return rows


def wait_until_gone(pids: Iterable[int], timeout: float = 60) -> bool:
    """Wait until none of the processes runs."""
    pids, deadline = list(pids), time.monotonic() + timeout
    while alive(pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pids)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _described(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return str(process.pid)
