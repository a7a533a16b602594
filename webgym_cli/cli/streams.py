"""The standard streams of the process: opened where they lack, given up where they take no more."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import TextIO


def open_streams() -> None:
    """Open the standard streams that the process was started without, and let stdout take every character."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # `>&-`: the next file to be opened would stand in its place
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def explain_os_error(error: OSError) -> str:
    """Return what the system refused, and drop what stdout can't take any more."""
    try:
        sys.stdout.flush()
    except OSError:
        discard(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return "the reader of the output is gone"
    place = error.filename or "the output can't be written"
    return f"{place}: {error.strerror}"


def discard(stream: TextIO) -> None:
    """Send what is still to be written on stdout or stderr nowhere."""
    # The interpreter flushes both at its end and would complain again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def stderr_or_nothing() -> Iterator[None]:
    """Write on stderr in the block, and nowhere once it takes no more."""
    try:
        yield
    except OSError:
        discard(sys.stderr)


def share_one_file() -> bool:
    """Whether stdout and stderr lead to one place (`2>&1`)."""
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (OSError, ValueError):  # one of them is no file
        return False
