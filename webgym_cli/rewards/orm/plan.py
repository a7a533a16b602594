"""Decides which stored trajectories an outcome reward model scores: those asked for, less what it has scored."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from webgym_cli.agent.orm_prompt import compute_prompt_digest
from webgym_cli.config.orm import OrmSettings
from webgym_cli.errors import SettingsError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.judgement import Judgement, environment_verdict, newest_judgement
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rewards.judge.plan import JudgeQuery, Selection, asked_for, require_found
from webgym_cli.store.buffer import CorruptLines
from webgym_cli.store.run import RunDir


class OrmSkip(StrEnum):
    """Why a trajectory that was looked at is not scored."""

    INFRASTRUCTURE = "infrastructure_failure"
    """Its episode failed: there is nothing to score."""
    NO_STEPS = "no_steps"
    """Nothing was done in it."""
    SAME_MODEL = "scored_with_this_model"
    """The model has scored it, by the same words and threshold: nothing would be learnt."""
    NOT_SELECTED = "scored_otherwise"
    """Another model has, or the same by other words; `--all` scores it again."""


@dataclass(frozen=True, slots=True)
class ToScore:
    """One trajectory that will be scored."""

    id: str
    split: Split
    iteration: int
    environment: bool | None = None
    """The environment's own verdict; None when it has none."""
    probability: float | None = None
    """What the model gave it before, where only the threshold is another: then nothing is asked."""


@dataclass(frozen=True, slots=True)
class OrmPlan:
    """What `webgym score` will do."""

    owed: tuple[ToScore, ...]
    skipped: dict[str, int]
    """Trajectories that are not scored, by `OrmSkip`."""
    model: str
    threshold: float
    settings_digest: str
    damaged: tuple[str, ...] = ()
    """Stored lines that can't be read."""

    @property
    def to_ask(self) -> int:
        """Trajectories for which the model is asked; the others' probability is known."""
        return sum(owed.probability is None for owed in self.owed)

    @property
    def to_skip(self) -> int:
        """Trajectories that were looked at and are not scored."""
        return sum(self.skipped.values())

    def to_json(self) -> dict[str, object]:
        """Return what `--dry-run` prints."""
        parts = Counter(f"{owed.split} {owed.iteration}" for owed in self.owed)
        return {
            "event": "plan",
            "stage": "score",
            "owed": len(self.owed),
            "to_ask": self.to_ask,
            **{f"skipped_{skip}": self.skipped.get(skip, 0) for skip in OrmSkip},
            "owed_by_iteration": dict(parts),
            "model": self.model,
            "threshold": self.threshold,
            "settings_digest": self.settings_digest,
        }


def plan_scoring(run: RunDir, settings: OrmSettings, query: JudgeQuery) -> OrmPlan:
    """Return the plan. Raises `UsageError` for an id that is not there, `MissingStageError` without trajectories."""
    digest, damage = compute_prompt_digest(settings), CorruptLines()
    owed: list[ToScore] = []
    skipped: Counter[str] = Counter()
    seen: set[str] = set()
    for trajectory, said in asked_for(run, query, damage):
        seen.add(trajectory.id)
        last = newest_judgement(said, "orm")
        known = last.probability if last is not None and last.settings_digest == digest else None
        if (skip := _skip(trajectory, last, known, settings.threshold, query.chosen)) is None:
            place = (trajectory.id, trajectory.split, trajectory.iteration)
            owed.append(ToScore(*place, environment=environment_verdict(trajectory), probability=known))
        else:
            skipped[skip.value] += 1
    require_found(run, query, seen)
    return OrmPlan(tuple(owed), dict(skipped), settings.model, settings.threshold, digest, tuple(damage.lines))


def require_orm(settings: OrmSettings) -> None:
    """Raise `SettingsError` unless the settings name a model or a server."""
    if not (settings.base_url or settings.model):
        raise SettingsError(
            "orm.base_url and orm.model are empty: there is no model to ask",
            hint="webgym score RUN --orm FOLDER, or --orm http://HOST:PORT/v1",
        )


def _skip(
    trajectory: Trajectory, last: Judgement | None, known: float | None, threshold: float, chosen: Selection
) -> OrmSkip | None:
    """Return why a trajectory is not scored; None when it is. `known`: what this model gave it, `last` what any did."""
    if trajectory.outcome.failure not in (None, FailureKind.JUDGE_FAILED):
        return OrmSkip.INFRASTRUCTURE
    if not trajectory.steps:
        return OrmSkip.NO_STEPS
    if last is None:
        return None
    if known is not None:
        return OrmSkip.SAME_MODEL if last.success is (known >= threshold) else None
    return OrmSkip.NOT_SELECTED if chosen is Selection.UNJUDGED else None
