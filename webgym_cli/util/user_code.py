"""Tells code of a user's, such as a plugin or a check, from webgym's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_RUNS: ContextVar[bool] = ContextVar("runs", default=False)


@contextmanager
def user_code() -> Iterator[None]:
    """Send what the block prints to stderr: it is no data of the command."""
    token = _RUNS.set(True)
    try:
        yield
    finally:
        _RUNS.reset(token)


def runs_user_code() -> bool:
    """Whether the caller is called from code of a user's."""
    return _RUNS.get()
