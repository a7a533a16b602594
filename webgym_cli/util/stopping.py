"""What SIGINT and SIGTERM do while a command stops after the first of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Seconds from the first signal in which another one does not cut the clean-up short.
GRACE = 10.0
# What interrupts the blocks of `interruptible_by`, at work now.
_interrupts: list[Callable[[], None]] = []


@dataclass(frozen=True, slots=True)
class _LaterSignals:
    """Handler of the signals after the first: without effect for `GRACE`, then the process ends at once."""

    first: int
    began: float = field(default_factory=time.monotonic)

    def __call__(self, number: int, _: object) -> None:
        """Handle a signal."""
        if time.monotonic() - self.began >= GRACE:
            os.write(2, b"webgym: ended at once by a further signal; its clean-up had not ended\n")
            os._exit(128 + number)


@contextmanager
def interruptible_by(interrupt: Callable[[], None]) -> Iterator[None]:
    """Let `interrupt_work` call a function during the block: DuckDB's threads go on when a handler raises."""
    _interrupts.append(interrupt)
    try:
        yield
    finally:
        _interrupts.remove(interrupt)


def interrupt_work() -> None:
    """Interrupt the blocks of `interruptible_by`. A handler that raises calls it first."""
    for interrupt in _interrupts:
        interrupt()


def ignore_further(received: int) -> None:
    """Leave signals after a received one without effect for `GRACE`.

    A later one ends the process, its guards the children.
    """
    handler = _LaterSignals(received)
    for one in SIGNALS:
        signal.signal(one, handler)


def first_signal() -> int | None:
    """Return the signal that stops this process, if one came.

    DuckDB and pydantic-core raise an error of their own in place of what a handler raised during a call of theirs.
    """
    handler = signal.getsignal(signal.SIGTERM)
    return handler.first if isinstance(handler, _LaterSignals) else None


def ignore_at_exit(first: object) -> None:
    """Ignore signals at the interpreter's end, which resets handlers, unless `first` still waits for the first one."""
    if signal.getsignal(signal.SIGTERM) is not first:
        for one in SIGNALS:
            signal.signal(one, signal.SIG_IGN)
