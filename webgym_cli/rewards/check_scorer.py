"""The checks of tasks as a scorer of stored trajectories."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.errors import BoundaryError
from webgym_cli.records.judgement import Judgement, can_check
from webgym_cli.records.statistics import ratio
from webgym_cli.records.trajectory import Score, Trajectory
from webgym_cli.rewards.selection import (
    PendingTrajectory,
    Scorer,
    ScoreResult,
    ScoringCounts,
    ScoringSelection,
    ScoringSkip,
)
from webgym_cli.scoring.check import CheckContext, NeedsPageError, find_check
from webgym_cli.tools.workers import Workers
from webgym_cli.util.text import name_first

_CONCURRENCY = 8
# Trajectories that the summary line names.
_NAMED = 5


class CheckScorer(Scorer):
    """Scores trajectories with the checks of their tasks, without their pages."""

    stage = "score"
    event = "scored"
    noun = "score"
    failure = "check failed"
    source = "check"
    hint = "mend the check, then run the same command again: what is scored stays"
    skip_reasons: tuple[ScoringSkip, ...] = (
        ScoringSkip.NO_CHECK,
        ScoringSkip.INFRASTRUCTURE,
        ScoringSkip.SAME_CHECK,
        ScoringSkip.REPLACED,
    )
    settings_digest = ""
    concurrency = _CONCURRENCY

    def __init__(self, settings: Settings) -> None:
        self._seconds = settings.agent.reward_timeout
        self._workers = Workers()
        self._need_page: list[str] = []
        self._shared = {name for name, site in settings.sites.items() if site.isolation != "tenant"}
        self._scored_sites: set[str] = set()
        self.problems: Counter[str] = Counter()
        """Number of trajectories without a score by reason."""

    def find_skip_reason(
        self, trajectory: Trajectory, last: Judgement | None, selection: ScoringSelection
    ) -> ScoringSkip | None:
        """Return why a trajectory is not scored, or None. Raises `UsageError` for a check that is not loaded."""
        if not trajectory.task.check:
            return ScoringSkip.NO_CHECK
        if not can_check(trajectory):
            return ScoringSkip.INFRASTRUCTURE
        stored = next((score.digest for score in trajectory.outcome.scores if score.source == "check"), None)
        digest = last.settings_digest if last else stored
        is_same = digest == find_check(trajectory.task).digest
        return ScoringSkip.SAME_CHECK if is_same and selection is not ScoringSelection.ALL else None

    async def score(self, pending: PendingTrajectory, trajectory: Trajectory) -> ScoreResult:
        """Run the check of a trajectory. A check that needs the live page, or fails, changes nothing."""
        began = time.monotonic()
        try:
            score = await find_check(trajectory.task).score(self._workers, CheckContext(trajectory), self._seconds)
        except BoundaryError as error:
            facts: dict[str, object] = {"check": trajectory.task.check, "failure_detail": str(error)}
            if isinstance(error.__cause__, NeedsPageError):
                self._need_page.append(trajectory.id)
                return ScoreResult(None, None, facts=facts)
            self.problems[str(error)] += 1
            return ScoreResult(None, None, problem=str(error), facts=facts)
        self._scored_sites.add(trajectory.task.site)
        return self.accept(pending, trajectory, score, time.monotonic() - began)

    def accept(
        self, pending: PendingTrajectory, trajectory: Trajectory, score: Score, seconds: float = 0.0
    ) -> ScoreResult:
        """Return the result of a trajectory with a score."""
        success = score.value >= trajectory.outcome.success_threshold
        verdict = {"settings_digest": score.digest, "reward": score.value, "extras": score.extras, "success": success}
        judgement = self.build_judgement(trajectory.id, score.detail, seconds, **verdict)
        outcome = {"check": score.detail, "reward": score.value, "previous": pending.previous}
        return ScoreResult(judgement, success, facts=outcome, counts={"reward": score.value})

    def summarize(self, counts: ScoringCounts, seconds: float) -> dict[str, Any]:
        """Return the summary event."""
        return {
            "event": "score",
            "scored": counts.verdicts,
            "successes": counts.successes,
            "success_rate": counts.success_rate,
            "interval": counts.interval,
            "mean_reward": ratio(counts.own["reward"], counts.verdicts),
            "needs_page": self._need_page,
            "shared_sites": sorted(self._scored_sites & self._shared),
            "check_failed": dict(self.problems),
            "agreement_with_previous": counts.with_previous.to_json(),
            "seconds": seconds,
        }

    @staticmethod
    def format_summary(summary: Mapping[str, Any]) -> str:
        """Return a summary as one line."""
        parts = [f"scored {summary['scored']} by their checks: {summary['successes']} solved"]
        if ids := summary["needs_page"]:
            named = name_first(ids, _NAMED)
            parts.append(f"{len(ids)} can't be scored again, because their checks read the live page ({named})")
        if sites := summary["shared_sites"]:
            named = ", ".join(sites)
            parts.append(f"checks that read the state of {named} saw what the last episode left (no tenants)")
        parts += [f"{count} without a score: {problem}" for problem, count in summary["check_failed"].items()]
        if (agreement := summary["agreement_with_previous"])["both"]:
            parts.append(f"{agreement['same']} of {agreement['both']} as before")
        return ", ".join([*parts, f"in {summary['seconds']:g} s"])
