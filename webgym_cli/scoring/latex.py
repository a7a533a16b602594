"""Equality of two expressions in LaTeX (`x+1` and `1+x`, intervals, sets, matrices), by `math-verify`."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from contextlib import suppress
from threading import Lock

from webgym_cli.errors import WebGymError
from webgym_cli.scoring import latex_script

# Timeout of the process's start, in seconds: it imports sympy, which takes long on a busy machine.
START_SECONDS = 120.0
# Timeout of one comparison, in seconds; the process's own are shorter.
ANSWER_SECONDS = 45.0


class LatexComparer:
    """Client of the comparison process, which is started on demand, also after a comparison has ended it.

    The process exits with this one, whose exit closes its stdin. Thread-safe; one comparison at a time.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def is_equal(self, given: str, wanted: str) -> bool:
        """Whether two expressions are equal; False if one can't be parsed or a limit is exceeded.

        Raises `WebGymError` if math-verify can't be started.
        """
        with self._lock:
            process = self._process or self._start()
            answer = _request(process, json.dumps([given, wanted]), ANSWER_SECONDS)
            if not answer:  # a limit was exceeded: the cause is the text, not this machine
                self._stop()
            return answer == b"true\n"

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            [sys.executable, "-I", latex_script.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # Ctrl-C must reach only the command, which then closes the process's stdin
        )
        if _request(self._process, "", START_SECONDS) != b"ready\n":
            self._stop()
            raise WebGymError(
                "answers in LaTeX can't be compared: math-verify does not start",
                hint=f"{sys.executable} -c 'import math_verify'",
            )
        return self._process

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _request(process: subprocess.Popen[bytes], line: str, seconds: float) -> bytes:
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
