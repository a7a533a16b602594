"""Equality of two expressions in LaTeX (`x+1` and `1+x`, intervals, sets, matrices), by `math-verify`."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from threading import BoundedSemaphore

from webgym_cli.errors import WebGymError
from webgym_cli.scoring import latex_script
from webgym_cli.util.secrets import environ_without_keys

# Maximum number of processes: of comparisons at the same time.
PROCESSES = 4
# Timeout of a process's start, in seconds: it imports sympy, which takes long on a busy machine.
START_SECONDS = 120.0
# Timeout of one comparison, in seconds, which the kernel ends after 2 s of CPU time: longer on a busy machine only.
ANSWER_SECONDS = 20.0

Process = subprocess.Popen[bytes]


class LatexComparer:
    """Client of the comparison processes, which are started on demand. Thread-safe.

    The processes exit with this one, whose exit closes their stdin.
    """

    def __init__(self) -> None:
        self._slots = BoundedSemaphore(PROCESSES)
        self._idle: list[Process] = []

    def is_equal(self, given: str, wanted: str) -> bool:
        """Whether two expressions are equal; False if one can't be parsed or a limit is exceeded.

        Raises `WebGymError` if math-verify can't be started, or was killed: a machine without memory or time must not
        make a right answer wrong.
        """
        with self._slots:
            process = self._idle.pop() if self._idle else _start()
            answer = b""
            try:
                answer = _request(process, json.dumps([given, wanted]), ANSWER_SECONDS)
            finally:
                # Without an answer, also after an exception at a reward's deadline, the next line would be this one's.
                if answer:
                    self._idle.append(process)
                else:
                    _stop(process)
            if process.returncode == -signal.SIGKILL:
                reason = f"their process was killed, or got no CPU time in {ANSWER_SECONDS:g} s"
                raise WebGymError(f"answers in LaTeX can't be compared: {reason}", hint="lower rollout.concurrency")
            return answer == b"true\n"

    def close(self) -> None:
        """Stop the idle processes."""
        while self._idle:
            _stop(self._idle.pop())


def _start() -> Process:
    process = subprocess.Popen(
        [sys.executable, "-I", latex_script.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environ_without_keys(),
        bufsize=0,
        start_new_session=True,  # Ctrl-C must reach only the command, which then closes the process's stdin
    )
    if _request(process, "", START_SECONDS) != b"ready\n":
        _stop(process)
        raise WebGymError(
            "answers in LaTeX can't be compared: math-verify does not start",
            hint=f"{sys.executable} -c 'import math_verify'",
        )
    return process


def _stop(process: Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # with the child that compares
    process.communicate()


def _request(process: Process, line: str, seconds: float) -> bytes:
    """Write a line, unless it is empty, and return the process's next line; empty on timeout or exit."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(OSError):  # it has ended
        if line:
            process.stdin.write(f"{line}\n".encode())
        if select.select([process.stdout], [], [], seconds)[0]:
            return process.stdout.readline()
    return b""


_COMPARER = LatexComparer()
is_equal_latex = _COMPARER.is_equal
