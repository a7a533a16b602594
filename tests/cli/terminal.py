"""A terminal that is none: what a command writes to one side is read from the other."""

import os
import pty
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    """Give both sides of a pseudo-terminal: what is written to the second can be read from the first."""
    ours, theirs = pty.openpty()
    try:
        yield ours, theirs
    finally:
        os.close(ours)


def rest(ours: int) -> str:
    """Return all that comes from a terminal until its other side is closed."""
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:  # the other side is closed
        pass
    return shown.decode()
