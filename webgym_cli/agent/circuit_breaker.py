"""Circuit breaker: stops requests to a server after consecutive failures, until it has recovered.

Closed, it counts consecutive failures; `limit` of them open it for a pause. The pause doubles each time the server
fails again before a request has succeeded. After the pause a health probe decides whether the breaker becomes
half-open: then the result of one trial request closes or opens it.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    first_pause: float
    """Initial pause, in seconds."""
    longest_pause: float
    """Maximum pause, in seconds."""
    state: BreakerState = BreakerState.CLOSED
    pause: float = 0.0
    """Seconds from the opening to the next probe; 0 once the server has worked again."""
    times_opened: int = 0
    """Number of times that failed requests opened it."""
    _in_a_row: int = 0
    _on_trial: bool = False

    @property
    def admits(self) -> bool:
        """Whether a request may go to the server now."""
        return self.state is BreakerState.CLOSED or (self.state is BreakerState.HALF_OPEN and not self._on_trial)

    def start_request(self) -> int:
        """Record the start of a request and return the term for `finish_request`. Requires `admits`."""
        self._on_trial = self.state is BreakerState.HALF_OPEN
        return self.times_opened

    def finish_request(self, term: int, *, worked: bool | None) -> None:
        """Record the result of a request; None: it was cancelled by us, which is neither success nor failure."""
        # The request began before the breaker opened: its result is outdated.
        if term != self.times_opened:
            return
        self._on_trial = False
        if worked:
            self.state, self.pause, self._in_a_row = BreakerState.CLOSED, 0.0, 0
        elif worked is False:
            self._in_a_row += 1
            if self.state is BreakerState.HALF_OPEN or self._in_a_row >= self.limit:
                self.times_opened += 1
                self._open()

    def record_probe(self, *, healthy: bool) -> None:
        """Record the result of a health probe after the pause."""
        if healthy:
            self.state = BreakerState.HALF_OPEN
        else:
            self._open()

    def _open(self) -> None:
        self.state, self._in_a_row = BreakerState.OPEN, 0
        # Exponential backoff.
        self.pause = min(self.longest_pause, 2 * self.pause or self.first_pause)
