"""A circuit breaker: leaves a server alone that failed too often, and lets it in again once it has shown that it works.

Closed, it counts failures in a row. So many of them open it for a pause, and each time the server fails again before
it has worked, the pause is twice as long. After the pause a health probe decides whether it is half-open: then one
request, the trial, decides whether it closes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


class BreakerState(StrEnum):
    """Whether a server gets requests."""

    CLOSED = "closed"
    """It does."""
    OPEN = "open"
    """It does not."""
    HALF_OPEN = "half_open"
    """It gets one, and then it is seen."""


@dataclass(slots=True)
class CircuitBreaker:
    """The breaker of one server. Knows nothing of servers: it is told how requests and probes ended."""

    limit: int
    """So many failures in a row open it."""
    pause: float
    """Seconds that it is open the first time."""
    longest: float
    """Seconds that it is open at most, however often the server failed."""
    clock: Callable[[], float] = time.monotonic
    """Seconds that never go back."""
    state: BreakerState = BreakerState.CLOSED
    times_opened: int = 0
    """How often failed requests have opened it."""
    _term: int = 0
    """Counts the changes of state: a request that began before the last one says nothing of the present."""
    _in_a_row: int = 0
    _trial: bool = False
    _next_pause: float = field(init=False)
    _until: float = 0.0

    def __post_init__(self) -> None:
        """Begin with the shortest pause."""
        self._next_pause = min(self.pause, self.longest)

    @property
    def admits(self) -> bool:
        """Whether a request may go to the server now."""
        return self.state is BreakerState.CLOSED or (self.state is BreakerState.HALF_OPEN and not self._trial)

    @property
    def remaining(self) -> float:
        """Seconds until the server may be probed; 0 when it may be, or need not."""
        return max(0.0, self._until - self.clock()) if self.state is BreakerState.OPEN else 0.0

    def start_request(self) -> int:
        """Note that a request goes to the server, and return what `leave` has to be told. Only while it `admits`."""
        self._trial = self.state is BreakerState.HALF_OPEN
        return self._term

    def finish_request(self, term: int, *, worked: bool | None) -> None:
        """Note how a request ended; None: it was given up by us, which says nothing of the server."""
        if term != self._term:
            return
        self._trial = False
        if worked:
            self._in_a_row = 0
            if self.state is BreakerState.HALF_OPEN:
                self._next_pause = min(self.pause, self.longest)
                self._change(BreakerState.CLOSED)
        elif worked is False:
            self._in_a_row += 1
            if self.state is BreakerState.HALF_OPEN or self._in_a_row >= self.limit:
                self.times_opened += 1
                self._open()

    def record_probe(self, *, healthy: bool) -> None:
        """Note the answer of a probe that was made when the pause was over."""
        if healthy:
            self._change(BreakerState.HALF_OPEN)
        else:
            self._open()

    def _open(self) -> None:
        self._until = self.clock() + self._next_pause
        self._next_pause = min(self.longest, 2 * self._next_pause)
        self._change(BreakerState.OPEN)

    def _change(self, state: BreakerState) -> None:
        self.state = state
        self._term += 1
        self._in_a_row = 0
        self._trial = False
