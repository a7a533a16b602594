"""Runs webgym in processes forked from one that has imported all of it: real ones, without the second of each start."""

import atexit
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing import reduction
from multiprocessing.process import BaseProcess, current_process
from pathlib import Path
from typing import Any

from webgym_cli.cli.main import main

PATIENCE = 300.0
"""Seconds that a command may take on a busy machine."""

SYNCED = "TEST_WAITS_FOR_THE_DISK"
"""Variable of a command that waits for the disk as for its users, so that there is time between its writes."""
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.preloaded"])


def begin(
    *arguments: object, cwd: Path, streams: Mapping[int, str | int] | None = None, **environment: str
) -> BaseProcess:
    """Begin webgym in a session of its own.

    `streams`: the file or descriptor, by number, that stands in a stream's place, else none; `-`: it is closed.
    """
    given = [_Stream((streams or {}).get(number, os.devnull)) for number in range(3)]
    process = _FORKS.Process(
        target=_run, args=(list(map(str, arguments)), cwd, given, {**os.environ, **environment}), daemon=True
    )
    process.start()
    return process


def webgym(
    *arguments: object,
    cwd: Path,
    code: int | None = 0,
    stdin: str = "",
    streams: Mapping[int, str] | None = None,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run webgym to its end, its output into files. From a coroutine: `await asyncio.to_thread(webgym, ...)`.

    It has to end with this exit code (None: with any) and without a traceback. `streams`: as those of `begin`.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("stdin", "stdout", "stderr")]
        files[0].write_text(stdin)
        paths = {number: str(file) for number, file in enumerate(files)} | dict(streams or {})
        process = begin(*arguments, cwd=cwd, streams=paths, **environment)
        process.join(PATIENCE)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(list(map(str, arguments)), PATIENCE, *map(_read, files[1:]))
        ended = subprocess.CompletedProcess(arguments, process.exitcode, *map(_read, files[1:]))
    assert code in (None, ended.returncode), ended.stderr
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended


def webgym_values(*arguments: object, **options: Any) -> tuple[int, list[Any], str]:
    """Run webgym to its end and return its exit code, the values on stdout, and stderr."""
    done = webgym(*arguments, code=None, **options)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def refused(*arguments: object, cwd: Path, code: int = 2) -> tuple[str, str]:
    """Run webgym, which must end with this code; return the message and the hint: a line each, the last ones."""
    return read_refusal(webgym(*arguments, cwd=cwd, code=code).stderr)


def read_refusal(text: str) -> tuple[str, str]:
    """Return message and hint of a command that failed, of what it wrote to stderr."""
    assert "Traceback" not in text, text
    message, hint = text.splitlines()[-2:]
    assert (message.startswith("webgym: "), hint.startswith("  next: ")) == (True, True), text
    return message.removeprefix("webgym: "), hint.removeprefix("  next: ")


def _read(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""


class _Stream:
    """What stands in a stream's place; a descriptor is handed to the process."""

    def __init__(self, given: str | int) -> None:
        self.given = given

    def __reduce__(self) -> tuple:
        return _received, (reduction.DupFd(self.given) if isinstance(self.given, int) else self.given,)


def _received(given: Any) -> str | int:
    return given if isinstance(given, str) else given.detach()


def _run(words: list[str], cwd: Path, streams: list[str | int], environment: Mapping[str, str]) -> None:
    """Become the command: its folder, its variables, its streams."""
    current_process().daemon = False  # it ends with us, and may have processes of its own
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    if SYNCED not in environment:
        os.fsync = lambda descriptor: None  # as in the process of the tests: a kill loses nothing that was written
    for number, given in enumerate(streams):
        if given == "-":
            os.close(number)
            continue
        how = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND
        opened = given if isinstance(given, int) else os.open(given, how)
        os.dup2(opened, number)
        os.close(opened)
    closed = [given == "-" for given in streams]
    coding = environment.get("PYTHONIOENCODING", "utf-8")
    sys.stdin, sys.stdout = open(0, encoding="utf-8"), None if closed[1] else open(1, "w", encoding=coding)  # noqa: SIM115
    sys.stderr = None if closed[2] else open(2, "w", encoding=coding, errors="backslashreplace", buffering=1)  # noqa: SIM115
    sys.argv = ["webgym", *words]
    try:
        main()
    finally:
        # a forked process ends without what an interpreter does at its end
        atexit._run_exitfuncs()
        sys.stdout.flush()
