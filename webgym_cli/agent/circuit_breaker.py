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
    """State of a circuit breaker."""

    CLOSED = "closed"
    """All requests are admitted."""
    OPEN = "open"
    """No request is admitted."""
    HALF_OPEN = "half_open"
    """One trial request is admitted; its result closes or opens the breaker."""


@dataclass(slots=True)
class CircuitBreaker:
    """The circuit breaker of one server; its caller reports the results of requests and probes."""

    limit: int
    """Consecutive failures that open it."""
    pause: float
    """Initial pause, in seconds."""
    longest: float
    """Maximum pause, in seconds."""
    clock: Callable[[], float] = time.monotonic
    """Seconds that never go back."""
    state: BreakerState = BreakerState.CLOSED
    times_opened: int = 0
    """Number of times that failed requests opened it."""
    _term: int = 0
    """Number of state changes: a request that began in an earlier state is ignored."""
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
        """Record the start of a request and return the term for `finish_request`. Requires `admits`."""
        self._trial = self.state is BreakerState.HALF_OPEN
        return self._term

    def finish_request(self, term: int, *, worked: bool | None) -> None:
        """Record the result of a request; None: it was cancelled by us."""
        # The request began in an earlier state: its result is outdated.
        if term != self._term:
            return
        self._trial = False
        if worked:
            self._in_a_row = 0
            if self.state is BreakerState.HALF_OPEN:
                self._next_pause = min(self.pause, self.longest)
                self._change(BreakerState.CLOSED)
        # None (cancelled by us) counts neither as success nor as failure.
        elif worked is False:
            self._in_a_row += 1
            if self.state is BreakerState.HALF_OPEN or self._in_a_row >= self.limit:
                self.times_opened += 1
                self._open()

    def record_probe(self, *, healthy: bool) -> None:
        """Record the result of a health probe after the pause."""
        if healthy:
            self._change(BreakerState.HALF_OPEN)
        else:
            self._open()

    def _open(self) -> None:
        self._until = self.clock() + self._next_pause
        # Exponential backoff.
        self._next_pause = min(self.longest, 2 * self._next_pause)
        self._change(BreakerState.OPEN)

    def _change(self, state: BreakerState) -> None:
        self.state = state
        self._term += 1
        self._in_a_row = 0
        self._trial = False
