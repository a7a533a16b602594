"""Runs webgym in processes forked from one that has imported all of it: real ones, without the second of each start."""

import atexit
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from webgym_cli.cli.main import main

PATIENCE = 300.0
"""Seconds that a command may take on a busy machine."""

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.preloaded"])


def webgym(
    *arguments: object,
    cwd: Path,
    code: int | None = 0,
    stdin: str = "",
    streams: Mapping[int, str] | None = None,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run webgym to its end, its output into files. From a coroutine: `await asyncio.to_thread(webgym, ...)`.

    It has to end with this exit code (None: with any) and without a traceback. `streams`: the file, by number, that
    stands in a stream's place; `-`: it is closed.
    """
    words = list(map(str, arguments))
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("stdin", "stdout", "stderr")]
        files[0].write_text(stdin)
        paths = [Path((streams or {}).get(number, file)) for number, file in enumerate(files)]
        process = _FORKS.Process(target=_run, args=(words, cwd, paths, {**os.environ, **environment}))
        process.start()
        process.join(PATIENCE)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(words, PATIENCE, *map(_read, files[1:]))
        ended = subprocess.CompletedProcess(words, process.exitcode, *map(_read, files[1:]))
    assert code in (None, ended.returncode), ended.stderr
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended


def _read(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""


def _run(words: list[str], cwd: Path, files: list[Path], environment: Mapping[str, str]) -> None:
    """Become the command: its folder, its variables, its streams."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for number, file in enumerate(files):
        if file.name == "-":
            os.close(number)
            continue
        opened = os.open(file, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, number)
    closed = [file.name == "-" for file in files]
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
