"""Decides which stored trajectories are judged: those asked for, less what needs no judge and what has its verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from webgym_cli.config.rollout import JudgeSettings
from webgym_cli.errors import MissingStageError, UsageError
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.judgement import Judgement, environment_verdict, needs_judge, newest_judgement
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rewards.judge.judge import compute_settings_digest, name_models
from webgym_cli.store.buffer import CorruptLines, list_iterations, read_judgements, scan_stored
from webgym_cli.store.run import RunDir


class Selection(StrEnum):
    """Which of the trajectories that can be judged are judged."""

    UNJUDGED = "unjudged"
    """Those without a verdict: never judged, or the judge failed."""
    FAILED = "failed"
    """Only those at which the judge failed."""
    ALL = "all"
    """Everything, also what has a verdict by other settings or a score of its environment's."""


class Skip(StrEnum):
    """Why a trajectory that was looked at is not judged."""

    INFRASTRUCTURE = "infrastructure_failure"
    """Its episode failed: there is nothing to judge."""
    ENVIRONMENT = "scored_by_environment"
    """Its environment told how it went."""
    SAME_SETTINGS = "judged_with_these_settings"
    """Its newest verdict was given by these very settings: nothing would be learnt."""
    NOT_SELECTED = "not_selected"
    """It has a verdict by other settings, or, with `failed`, its judge did not fail."""


@dataclass(frozen=True, slots=True)
class JudgeQuery:
    """Which trajectories are asked for; None: all."""

    split: Split | None = None
    iteration: int | None = None
    selection: Selection | None = None
    """None: `all` with ids, else `unjudged`."""
    ids: tuple[str, ...] | None = None
    """These trajectories only."""

    @property
    def chosen(self) -> Selection:
        """The selection that counts."""
        return self.selection or (Selection.UNJUDGED if self.ids is None else Selection.ALL)


class Named(Protocol):
    """Says which trajectory it is about."""

    @property
    def id(self) -> str:
        """The trajectory's."""
        ...

    @property
    def split(self) -> Split:
        """Where it is stored."""
        ...

    @property
    def iteration(self) -> int:
        """Where it is stored."""
        ...


OneOwed = TypeVar("OneOwed", bound=Named)


@dataclass(frozen=True, slots=True)
class Owed:
    """One trajectory that will be judged."""

    id: str
    split: Split
    iteration: int
    previous: bool | None = None
    """The verdict so far; None when there is none."""
    known: bool = False
    """Whether any judgement of it is stored."""
    environment: bool | None = None
    """The environment's own verdict; None when it has none."""


@dataclass(frozen=True, slots=True)
class JudgePlan:
    """What `webgym judge` will do."""

    owed: tuple[Owed, ...]
    skipped: dict[str, int]
    """Trajectories that are not judged, by `Skip`."""
    models: dict[str, str]
    settings_digest: str
    damaged: tuple[str, ...] = ()
    """Stored lines that can't be read."""

    @property
    def to_skip(self) -> int:
        """Trajectories that were looked at and are not judged."""
        return sum(self.skipped.values())

    def to_json(self) -> dict[str, object]:
        """Return what `--dry-run` prints."""
        parts = Counter(f"{owed.split} {owed.iteration}" for owed in self.owed)
        return {
            "event": "plan",
            "stage": "judge",
            "owed": len(self.owed),
            **{f"skipped_{skip}": self.skipped.get(skip, 0) for skip in Skip},
            "owed_by_iteration": dict(parts),
            "models": self.models,
            "settings_digest": self.settings_digest,
        }


def plan_judging(run: RunDir, settings: JudgeSettings, query: JudgeQuery) -> JudgePlan:
    """Return the plan. Raises `UsageError` for an id that is not there, `MissingStageError` without trajectories."""
    digest, damage = compute_settings_digest(settings), CorruptLines()
    owed: list[Owed] = []
    skipped: Counter[str] = Counter()
    seen: set[str] = set()
    for trajectory, said in asked_for(run, query, damage):
        seen.add(trajectory.id)
        last = newest_judgement(said, "judge")
        if (skip := _skip(trajectory, last, query.chosen, digest)) is None:
            owed.append(_owed(trajectory, last))
        else:
            skipped[skip.value] += 1
    require_found(run, query, seen)
    return JudgePlan(tuple(owed), dict(skipped), name_models(settings), digest, tuple(damage.lines))


def load_owed(run: RunDir, owed: Iterable[OneOwed]) -> Iterator[tuple[OneOwed, Trajectory]]:
    """Yield what is owed with its trajectory, read one after the other: all at once might not fit into memory."""
    places: dict[tuple[Split, int], dict[str, OneOwed]] = {}
    for one in owed:
        places.setdefault((one.split, one.iteration), {})[one.id] = one
    for (split, iteration), wanted in places.items():
        for trajectory in scan_stored(run, split, iteration):
            if found := wanted.get(trajectory.id):
                yield found, trajectory


def asked_for(run: RunDir, query: JudgeQuery, damage: CorruptLines) -> Iterator[tuple[Trajectory, list[Judgement]]]:
    """Yield the trajectories that are asked for as they were stored, each with its judgements, oldest first."""
    for split in Split if query.split is None else (query.split,):
        for iteration in list_iterations(run, split):
            if query.iteration not in (None, iteration):
                continue
            said = read_judgements(run, split, iteration, damage)
            for trajectory in scan_stored(run, split, iteration, damage):
                if query.ids is None or trajectory.id in query.ids:
                    yield trajectory, said.get(trajectory.id, [])


def _skip(trajectory: Trajectory, last: Judgement | None, chosen: Selection, digest: str) -> Skip | None:
    """Return why a trajectory is not judged; None when it is."""
    outcome = trajectory.outcome
    if outcome.failure not in (None, FailureKind.JUDGE_FAILED):
        return Skip.INFRASTRUCTURE
    if trajectory.prompt.tools is not None:
        return Skip.ENVIRONMENT  # a judge goes by screenshots
    if not needs_judge(trajectory) and not (chosen is Selection.ALL and outcome.stop is Stop.ANSWERED):
        return Skip.ENVIRONMENT
    failed = (last.failure if last else outcome.failure) is FailureKind.JUDGE_FAILED
    has_verdict = last is not None and not failed
    if last is not None and has_verdict and last.settings_digest == digest:
        return Skip.SAME_SETTINGS
    unasked = {Selection.UNJUDGED: has_verdict, Selection.FAILED: not failed, Selection.ALL: False}
    return Skip.NOT_SELECTED if unasked[chosen] else None


def _owed(trajectory: Trajectory, last: Judgement | None) -> Owed:
    return Owed(
        id=trajectory.id,
        split=trajectory.split,
        iteration=trajectory.iteration,
        previous=last.success if last else None,
        known=last is not None,
        environment=environment_verdict(trajectory),
    )


def require_found(run: RunDir, query: JudgeQuery, seen: set[str]) -> None:
    """Raise `UsageError` for an id that is not there, `MissingStageError` where there is nothing at all."""
    if missing := [name for name in query.ids or () if name not in seen]:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise UsageError(f"{run.root}: no trajectory {missing[0]!r}{more}", hint=f"webgym inspect-buffer {run.root} -q")
    if not seen and query.ids is None:
        of = "" if query.iteration is None else f" of iteration {query.iteration}"
        split = f"{query.split} " if query.split else ""
        raise MissingStageError(f"{run.root}: no {split}trajectories{of} to judge", hint=f"webgym rollout {run.root}")
