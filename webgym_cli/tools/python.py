"""The Python tool: runs the policy's code in a sandboxed process (`sandbox`)."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import platform
import signal
import sys
from functools import cache
from pathlib import Path

from webgym_cli.errors import BoundaryError
from webgym_cli.records.failure import FailureKind
from webgym_cli.tools import sandbox_script
from webgym_cli.tools.define import tool
from webgym_cli.tools.syscall_filter import filter_blocks
from webgym_cli.util.optional import when
from webgym_cli.util.text import replace_surrogates

WALL_SECONDS = 10.0
CPU_SECONDS = 8
# Address space in bytes.
MEMORY = 512 * 2**20
# Bytes of output after which the code is stopped.
OUTPUT = 16 * 1024
# Packages that code may import if they are installed in webgym's environment.
PACKAGES = ("numpy", "sympy", "mpmath")
# Environment variables of the process. More threads would share its CPU time, and each takes 40 MiB of its memory.
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_EMPTY = "(no output)"
# Signals that end a process at its CPU time limit.
_BY_LIMIT = (signal.SIGXCPU, signal.SIGKILL)


@tool(timeout=WALL_SECONDS + 5)
async def python(code: str) -> str:
    """Run Python code and return what it prints; the value of a last line that is an expression is printed too.

    Each call starts anew with Python's standard library, and numpy and sympy where installed. There is no network.

    Args:
        code: The program.
    """
    return await run_code(code)


async def run_code(code: str, *, wall_seconds: float = WALL_SECONDS) -> str:
    """Run a program in the sandbox; return its output, and the reason if it was stopped.

    Raises `BoundaryError` if this machine has no sandbox: code is never run without one. The process is always ended,
    on cancellation, too.
    """
    job = _job(code)
    try:
        process = await asyncio.create_subprocess_exec(
            *(_interpreter(), "-I", "-S", sandbox_script.__file__),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=ENVIRONMENT,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:  # too many processes or open files: no fault of the code
        raise _no_sandbox(str(error)) from error
    try:
        printed, stopped = await _run_job(process, job, wall_seconds)
    finally:
        # The sandboxed process can't fork, and dies with the process that waits for it.
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        # Drain the pipes: asyncio waits for their EOF, which it never sees while it has paused a pipe that holds
        # more than was read.
        _, complaint = await process.communicate()
    if complaint:  # the code itself can't write there
        raise _no_sandbox(complaint.decode(errors="replace").strip())
    reason = stopped or _describe_end(process.returncode)
    return "\n".join(filter(None, (printed.rstrip("\n"), when(reason, f"[{reason}]")))) or _EMPTY


def _job(code: str) -> bytes:
    """Return the job for the sandbox's stdin. Raises `BoundaryError` on a machine without a system call filter."""
    parts = filter_blocks(platform.machine())
    if parts is None:
        raise _no_sandbox(f"no system call filter is known for {platform.machine()}")
    job = {
        "code": replace_surrogates(code),
        "parent": os.getpid(),
        "cpu_seconds": CPU_SECONDS,
        "memory": MEMORY,
        "packages": _package_folders(),
        "filter": {name: part.hex() for name, part in parts.items()},
    }
    return json.dumps(job).encode()


def _no_sandbox(reason: str) -> BoundaryError:
    return BoundaryError(
        FailureKind.ENVIRONMENT_ERROR,
        f"the tool python has no sandbox on this machine: {reason}",
        hint="take python out of agent.tools, or run on x86_64 or aarch64 with a kernel that has seccomp",
    )


@cache
def _package_folders() -> dict[str, str]:
    """Return the folders of installed `PACKAGES`, and of the shared libraries beside them (`numpy.libs`)."""
    folders = {}
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            folders[name] = str(Path(spec.submodule_search_locations[0]).resolve())
            folders[f"{name}.libs"] = f"{folders[name]}.libs"
    return folders


@cache
def _interpreter() -> str:
    """Return the base interpreter, so that the code can't import the packages of a virtual environment."""
    return str(Path(sys.executable).resolve())


async def _run_job(process: asyncio.subprocess.Process, job: bytes, wall_seconds: float) -> tuple[str, str]:
    """Send the job; return the output, and the reason if the code was stopped."""
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("a process without pipes")
    printed, stopped = b"", ""
    try:
        async with asyncio.timeout(wall_seconds):
            with contextlib.suppress(ConnectionError):
                process.stdin.write(job)
                await process.stdin.drain()
            process.stdin.close()
            while len(printed) <= OUTPUT and (part := await process.stdout.read(OUTPUT + 1 - len(printed))):
                printed += part
            if len(printed) > OUTPUT:
                stopped = f"stopped: more than {OUTPUT} bytes of output"
            else:
                await process.wait()
    except TimeoutError:
        stopped = f"stopped after {wall_seconds:g} s"
    return printed[:OUTPUT].decode(errors="replace"), stopped


def _describe_end(status: int | None) -> str:
    """Return the reason for a death by signal; empty if the code exited or was not waited for."""
    if status is None or status >= 0:
        return ""
    if -status in _BY_LIMIT:
        return f"stopped: more than {CPU_SECONDS} s of computing"
    return f"stopped by signal {-status}"
