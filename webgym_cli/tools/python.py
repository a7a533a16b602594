"""The Python tool: code of the policy's, in a process that can reach next to nothing (`sandbox`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from functools import cache
from pathlib import Path

from webgym_cli.errors import BoundaryError
from webgym_cli.records.failure import FailureKind
from webgym_cli.tools import sandbox
from webgym_cli.tools.define import tool

WALL_SECONDS = 10.0
"""Longest run, waiting included."""
CPU_SECONDS = 8
MEMORY = 512 * 2**20
"""Address space in bytes."""
OUTPUT = 16 * 1024
"""Bytes of output after which the code is stopped."""
_EMPTY = "(no output)"
_BY_LIMIT = (signal.SIGXCPU, signal.SIGKILL)
"""The signals by which the limit of CPU time ends a process."""


@tool(timeout=WALL_SECONDS + 5)
async def python(code: str) -> str:
    """Run Python code and return what it prints; the value of a last line that is an expression is printed too.

    Each call starts anew with Python's standard library; there are no files and no network.

    Args:
        code: The program.
    """
    return await run_code(code)


async def run_code(code: str, *, wall_seconds: float = WALL_SECONDS, output: int = OUTPUT) -> str:
    """Return what a program printed, and why it was stopped if it was.

    Raises `BoundaryError` where this machine has no sandbox: nothing is run without one. No process is left, however
    this ends.
    """
    process = await asyncio.create_subprocess_exec(
        *(_interpreter(), "-I", "-S", sandbox.__file__),
        *(str(CPU_SECONDS), str(MEMORY), str(os.getpid())),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={},
        cwd="/",
        start_new_session=True,
    )
    try:
        printed, stopped = await _talk(process, code.encode(errors="replace"), wall_seconds, output)
    finally:
        # The sandbox lets it start no other process: it is all of its tree.
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        # What is left in the pipes is read, too: asyncio waits for their ends, which it never sees while it has
        # paused one that holds more than was asked for.
        _, complaint = await process.communicate()
    if complaint:  # the code itself can't write there
        raise BoundaryError(
            FailureKind.ENVIRONMENT_ERROR,
            f"the tool python has no sandbox on this machine: {complaint.decode(errors='replace').strip()}",
            hint="take python out of agent.tools, or use a kernel with Landlock and seccomp",
        )
    return _told(printed, stopped or _why(process.returncode))


@cache
def _interpreter() -> str:
    """Return the interpreter itself: an environment's packages are not for the code."""
    return str(Path(sys.executable).resolve())


async def _talk(process: asyncio.subprocess.Process, code: bytes, wall_seconds: float, limit: int) -> tuple[str, str]:
    """Give the code, and return what was printed and why the code was stopped."""
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("a process without pipes")
    printed, stopped = b"", ""
    try:
        async with asyncio.timeout(wall_seconds):
            with contextlib.suppress(ConnectionError):
                process.stdin.write(code)
                await process.stdin.drain()
            process.stdin.close()
            while len(printed) <= limit and (part := await process.stdout.read(limit + 1 - len(printed))):
                printed += part
            if len(printed) > limit:
                stopped = f"stopped: more than {limit} bytes of output"
            else:
                await process.wait()
    except TimeoutError:
        stopped = f"stopped after {wall_seconds:g} s"
    return printed[:limit].decode(errors="replace"), stopped


def _why(status: int | None) -> str:
    """Return why the code ended without being asked to; empty where it ran to its end."""
    if status is None or status >= 0:
        return ""
    return (
        f"stopped: more than {CPU_SECONDS} s of computing" if -status in _BY_LIMIT else f"stopped by signal {-status}"
    )


def _told(printed: str, stopped: str) -> str:
    return "\n".join(filter(None, (printed.rstrip("\n"), f"[{stopped}]" if stopped else ""))) or _EMPTY
