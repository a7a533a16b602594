"""The outcome reward model as a scorer of stored trajectories."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from webgym_cli.agent.actions.action_sets import find_action_set
from webgym_cli.agent.prompts.orm_prompt import build_orm_prompt, compute_prompt_digest
from webgym_cli.agent.tokens.orm_tokens import OrmError
from webgym_cli.config.judge import OrmSettings
from webgym_cli.errors import SettingsError
from webgym_cli.records.failure import is_rolled_out
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.statistics import ratio
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rewards.orm.client import OrmClient
from webgym_cli.rewards.selection import (
    PendingTrajectory,
    Scorer,
    ScoreResult,
    ScoringCounts,
    ScoringSelection,
    ScoringSkip,
)
from webgym_cli.tasks.encryption import is_encrypted


class OrmScorer(Scorer):
    """Scores trajectories with the configured outcome reward model."""

    stage = "score"
    event = "scored"
    noun = "score"
    failure = "unreadable"
    source = "orm"
    hint = "check orm.base_url, orm.model and the key, then run the same command again: what is scored stays"
    skip_reasons = (
        ScoringSkip.INFRASTRUCTURE,
        ScoringSkip.NO_STEPS,
        ScoringSkip.ENCRYPTED,
        ScoringSkip.SAME_MODEL,
        ScoringSkip.OTHER_MODEL,
    )

    def __init__(self, settings: OrmSettings, restart_timeout: float = 0.0) -> None:
        """Initialize without connecting, as plans need no server. `restart_timeout`: that of `OrmClient`."""
        self._restart_timeout = restart_timeout
        self._settings = settings
        self.settings_digest = compute_prompt_digest(settings)
        self.changed_at = _read_change_time(Path(settings.model))  # it may have been trained again in the same place
        self.concurrency = settings.concurrency
        self._client: OrmClient | None = None

    def find_skip_reason(
        self, trajectory: Trajectory, last: Judgement | None, selection: ScoringSelection
    ) -> ScoringSkip | None:
        """Return why a trajectory is not scored, or None."""
        if not is_rolled_out(trajectory.outcome.failure):
            return ScoringSkip.INFRASTRUCTURE
        if not trajectory.steps:
            return ScoringSkip.NO_STEPS
        if is_encrypted(trajectory.task):
            return ScoringSkip.ENCRYPTED
        if last is None:
            return None
        is_same = last.settings_digest == self.settings_digest and last.judged_at >= self.changed_at
        if last.probability is not None and is_same:
            return ScoringSkip.SAME_MODEL if last.success is self._is_success(last.probability) else None
        return ScoringSkip.OTHER_MODEL if selection is ScoringSelection.UNJUDGED else None

    def describe_plan(self, pending: Sequence[PendingTrajectory]) -> dict[str, object]:
        """Return the model, the threshold, and the number of trajectories to query."""
        to_ask = sum(one.probability is None for one in pending)
        return {"to_ask": to_ask, "model": self._settings.model, "threshold": self._settings.threshold}

    async def score(self, pending: PendingTrajectory, trajectory: Trajectory) -> ScoreResult:
        """Query the model unless the probability is already stored. Nothing is stored without a probability."""
        began = time.monotonic()
        reply, problem = None, ""
        if pending.probability is None:
            self._client = self._client or OrmClient(self._settings, self._restart_timeout)
            try:
                describe = find_action_set(trajectory.prompt).describe_step
                reply = await self._client.ask(build_orm_prompt(trajectory, describe))
            except OrmError as error:
                problem = str(error)
        probability = pending.probability
        costs: dict[str, float | None] = dict.fromkeys(("mass", "prompt_tokens", "cut_tokens"))
        if reply:
            probability = reply.probability.yes
            mass = round(reply.probability.mass, 6)
            costs = {"mass": mass, "prompt_tokens": reply.prompt_tokens, "cut_tokens": reply.cut}
        facts = {"probability": probability, **costs}
        if probability is None:
            return ScoreResult(None, None, problem=problem, facts=facts)
        success = self._is_success(probability)
        verdict = {"settings_digest": self.settings_digest, "probability": probability, "success": success}
        seconds, calls = time.monotonic() - began, int(reply is not None)
        judgement = self.build_judgement(pending.id, self._settings.model, seconds, calls=calls, **verdict)
        counts = {"asked": reply is not None, "cut": bool(reply and reply.cut), "probability": probability}
        return ScoreResult(judgement, success, facts=facts, counts=counts)

    def summarize(self, counts: ScoringCounts, seconds: float) -> dict[str, Any]:
        """Return the summary event."""
        return {
            "event": "score",
            "scored": counts.verdicts,
            "asked": counts.own["asked"],
            "successes": counts.successes,
            "success_rate": counts.success_rate,
            "interval": counts.interval,
            "mean_probability": ratio(counts.own["probability"], counts.verdicts),
            "unreadable": counts.failed,
            "cut": counts.own["cut"],
            "agreement_with_environment": counts.with_environment.to_json(),
            "model": self._settings.model,
            "threshold": self._settings.threshold,
            "seconds": seconds,
        }

    @staticmethod
    def format_summary(summary: Mapping[str, Any]) -> str:
        """Return a summary as one line."""
        parts = [f"scored {summary['scored']}: {summary['successes']} solved from {summary['threshold']:g} on"]
        if again := summary["scored"] - summary["asked"]:
            parts.append(f"{again} decided anew by the probability that was known")
        if unreadable := summary["unreadable"]:
            parts.append(f"{unreadable} without an answer (neither solved nor not)")
        if cut := summary["cut"]:
            parts.append(f"{cut} prompts cut")
        agreement = summary["agreement_with_environment"]
        if agreement["both"]:
            parts.append(f"{agreement['same']} of {agreement['both']} agree with the environment's score")
        return ", ".join([*parts, f"in {summary['seconds']:g} s"])

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()

    def _is_success(self, probability: float) -> bool:
        return probability >= self._settings.threshold


def require_orm(settings: OrmSettings) -> None:
    """Raise `SettingsError` unless the settings specify a model or a server."""
    if not (settings.base_url or settings.model):
        raise SettingsError(
            "orm.base_url and orm.model are empty: there is no model to ask",
            hint="webgym score RUN --orm FOLDER, or --orm http://HOST:PORT/v1",
        )


def _read_change_time(folder: Path) -> str:
    """Return when a model folder or a file in it was last written or replaced, as ISO 8601; empty without a folder."""
    if not folder.is_dir():
        return ""
    # not the time of the contents, which copies and moves can keep
    newest = max(path.lstat().st_ctime for path in (folder, *folder.iterdir()))
    return datetime.fromtimestamp(newest, UTC).isoformat(timespec="milliseconds")
