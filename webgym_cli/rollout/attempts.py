"""Stored attempts of one planned episode."""

from __future__ import annotations

from dataclasses import dataclass

from webgym_cli.records.failure import FailureKind, is_rolled_out
from webgym_cli.records.trajectory import Outcome, Trajectory


@dataclass(slots=True)
class EpisodeAttempts:
    """The stored attempts of one episode."""

    next: int = 0
    failures: int = 0
    rolled_out: bool = False
    newest: str = ""
    outcome: Outcome | None = None

    def add(self, trajectory: Trajectory, *, counts: bool) -> None:
        """Count one stored attempt. `counts`: whether it can finish the episode; if not, only its number is used up."""
        kind = trajectory.outcome.failure
        newest, self.next = trajectory.attempt >= self.next, max(self.next, trajectory.attempt + 1)
        if not counts:
            return
        if newest:
            self.newest, self.outcome = trajectory.id, trajectory.outcome
        if kind in (None, FailureKind.JUDGE_FAILED):
            self.rolled_out = True
        elif kind.counts_as_attempt:
            self.failures += 1

    def may_be_tried(self, limit: int) -> bool:
        """Whether another attempt is allowed: below the limit, and the last failure is retryable."""
        failure = self.outcome.failure if self.outcome else None
        hopeless = failure is not None and failure.counts_as_attempt and not failure.retryable
        return self.failures < limit and not hopeless

    def allow(self, limit: int) -> None:
        """Forget the failures of an episode that is given up."""
        if not self.may_be_tried(limit):
            self.failures, self.outcome = 0, None

    @property
    def unjudged(self) -> bool:
        """Whether the newest attempt was rolled out and has no reward."""
        known = self.outcome
        return known is not None and known.reward is None and is_rolled_out(known.failure)
