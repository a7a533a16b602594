"""Standard streams of the process: opens missing ones, discards output to broken ones."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import TextIO

from webgym_cli.util.secrets import RedactingStream


def open_streams() -> None:
    """Open missing standard streams; stdout accepts every character from now on, and no stream shows keys."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # `>&-`: the next opened file would get its descriptor
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stderr = RedactingStream(sys.stderr)
    sys.stdout = RedactingStream(sys.stdout, aside=sys.stderr)


def explain_os_error(error: OSError) -> str:
    """Return an operating-system error as text, and discard output that stdout can't take any more."""
    try:
        sys.stdout.flush()
    except OSError:
        discard(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return "the reader of the output is gone"
    place = error.filename or "the output can't be written"
    return f"{place}: {error.strerror}"


def discard(stream: TextIO) -> None:
    """Redirect stdout or stderr to the null device."""
    # The interpreter flushes both at exit and would report the error again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def stderr_or_nothing() -> Iterator[None]:
    """Ignore write errors of stderr in the block; later output goes to the null device."""
    try:
        yield
    except OSError:
        discard(sys.stderr)


def share_one_file() -> bool:
    """Whether stdout and stderr are the same file (`2>&1`)."""
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (OSError, ValueError):  # one of them has no file descriptor
        return False
