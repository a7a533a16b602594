"""The judge as a scorer of stored trajectories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from webgym_cli.config.judge import JudgeSettings
from webgym_cli.config.model_servers import MODEL_SERVERS
from webgym_cli.records.failure import FailureKind, Stop, is_rolled_out
from webgym_cli.records.judgement import Judgement, needs_judge
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rewards.judge.judge import Judge, compute_settings_digest, name_models
from webgym_cli.rewards.selection import (
    PendingTrajectory,
    Scorer,
    ScoreResult,
    ScoringCounts,
    ScoringSelection,
    ScoringSkip,
)
from webgym_cli.store.run import RunDir


class JudgeScorer(Scorer):
    """Scores trajectories with the configured judge."""

    stage = "judge"
    event = "judgement"
    noun = "verdict"
    failure = "judge_failed"
    source = "judge"
    hint = "check judge.base_url, judge.model and the key, then run the same command again: what was judged stays"
    skip_reasons = (
        ScoringSkip.INFRASTRUCTURE,
        ScoringSkip.ENVIRONMENT,
        ScoringSkip.SAME_SETTINGS,
        ScoringSkip.NOT_SELECTED,
    )

    def __init__(self, settings: JudgeSettings, run: RunDir) -> None:
        """Initialize without connecting, as plans need no server."""
        self._settings, self._run = settings, run
        self.settings_digest = compute_settings_digest(settings)
        self.concurrency = settings.concurrency
        self._judge: Judge | None = None

    def find_skip_reason(
        self, trajectory: Trajectory, last: Judgement | None, selection: ScoringSelection
    ) -> ScoringSkip | None:
        """Return why a trajectory is not judged, or None."""
        outcome = trajectory.outcome
        if not is_rolled_out(outcome.failure):
            return ScoringSkip.INFRASTRUCTURE
        # an episode of tool calls with an environment score has no screenshots for a second opinion
        is_page = trajectory.prompt.tools is None
        is_checked = self._settings.with_checks and any(score.source == "check" for score in outcome.scores)
        again = is_checked or (is_page and selection is ScoringSelection.ALL and outcome.stop is Stop.ANSWERED)
        if not needs_judge(trajectory) and not again:
            return ScoringSkip.ENVIRONMENT
        failed = (last.failure if last else outcome.failure) is FailureKind.JUDGE_FAILED
        has_verdict = last is not None and not failed
        if last is not None and has_verdict and last.settings_digest == self.settings_digest:
            return ScoringSkip.SAME_SETTINGS
        unselected = {ScoringSelection.UNJUDGED: has_verdict, ScoringSelection.FAILED: not failed}
        return ScoringSkip.NOT_SELECTED if unselected.get(selection) else None

    def describe_plan(self, pending: Sequence[PendingTrajectory]) -> dict[str, object]:
        """Return the model of each question."""
        return {"models": name_models(self._settings)}

    async def score(self, pending: PendingTrajectory, trajectory: Trajectory) -> ScoreResult:
        """Judge a trajectory. Raises `SettingsError` without a usable `judge.base_url`."""
        self._judge = self._judge or Judge(self._settings, self._run)
        judgement = await self._judge.judge(trajectory)
        failed = judgement.failure is FailureKind.JUDGE_FAILED
        return ScoreResult(
            judgement,
            judgement.success,
            problem=judgement.failure_detail if failed else "",
            facts={
                "failure": judgement.failure,
                "failure_detail": judgement.failure_detail or None,
                "previous": pending.previous,
                "calls": judgement.calls,
                "seconds": judgement.seconds,
            },
            counts={"calls": judgement.calls, "site_blocked": judgement.failure is FailureKind.SITE_BLOCKED},
        )

    def summarize(self, counts: ScoringCounts, seconds: float) -> dict[str, Any]:
        """Return the summary event."""
        return {
            "event": "judge",
            "judged": counts.done,
            "verdicts": counts.verdicts,
            "successes": counts.successes,
            "success_rate": counts.success_rate,
            "interval": counts.interval,
            "judge_failed": counts.failed,
            "site_blocked": counts.own["site_blocked"],
            "calls": counts.own["calls"],
            "agreement_with_previous": counts.with_previous.to_json(),
            "agreement_with_environment": counts.with_environment.to_json(),
            "models": name_models(self._settings),
            "seconds": seconds,
        }

    @staticmethod
    def format_summary(summary: Mapping[str, Any]) -> str:
        """Return a summary as one line."""
        parts = [f"judged {summary['judged']}: {summary['successes']} of {summary['verdicts']} solved"]
        if blocked := summary["site_blocked"]:
            parts.append(f"{blocked} blocked by their sites")
        if failed := summary["judge_failed"]:
            parts.append(f"{failed} judge_failed (neither solved nor not)")
        environment = summary["agreement_with_environment"]
        rule_based = {server.item.model for server in MODEL_SERVERS.known() if server.item and server.item.by_rules}
        previous = summary["agreement_with_previous"]
        for agreement, words in ((previous, "the verdict before"), (environment, "the environment's score")):
            if agreement["both"]:
                parts.append(f"{agreement['same']} of {agreement['both']} agree with {words}")
                if agreement is environment and rule_based & set(summary["models"].values()):
                    parts[-1] += " (a scripted judge follows rules; where an environment scores, its own score counts)"
        return ", ".join([*parts, f"{summary['calls']} calls in {summary['seconds']:g} s"])

    async def close(self) -> None:
        """Close the connections."""
        if self._judge is not None:
            await self._judge.close()
