"""What a scorer is, and the plan of its command: the stored trajectories that it still has to score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from webgym_cli.errors import MissingStageError
from webgym_cli.records.judgement import (
    Judgement,
    JudgementSource,
    can_check,
    environment_verdict,
    newest_judgement,
    newest_verdict,
    with_verdict,
)
from webgym_cli.records.series import name_series
from webgym_cli.records.statistics import Agreement, ratio, round_wilson
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.store.buffer import read_judgements, refuse_unknown, scan_stored
from webgym_cli.store.run import RunDir, now
from webgym_cli.util.optional import map_known, when


class ScoringSelection(StrEnum):
    """Which of the scorable trajectories are scored."""

    UNJUDGED = "unjudged"
    """Those without a verdict: never scored, or the judge failed."""
    FAILED = "failed"
    """Only those whose judge failed."""
    ALL = "all"
    """All, including those with a verdict under other settings or a score from the environment."""


class ScoringSkip(StrEnum):
    """Why a selected trajectory is not scored."""

    INFRASTRUCTURE = "infrastructure_failure"
    """Its episode failed because of infrastructure."""
    ENVIRONMENT = "scored_by_environment"
    """Its environment provided the reward."""
    SAME_SETTINGS = "judged_with_these_settings"
    """Its newest verdict was made with the same settings, so the result would be equal."""
    NOT_SELECTED = "not_selected"
    """It has a verdict under other settings, or, with `failed`, its judge did not fail."""
    NO_CHECK = "no_check"
    """Its task has no check."""
    NOT_EXPORTED = "not_exported"
    """The folder of an official scorer does not hold it."""
    SAME_CHECK = "scored_with_this_check"
    """The check, as it is now, already scored it."""
    NO_STEPS = "no_steps"
    """It has no steps."""
    ENCRYPTED = "encrypted_task"
    """The texts of its task are encrypted, and only the judge gets them decrypted."""
    REPLACED = "replaced"
    """A later attempt of its episode is scored: each episode counts once."""
    SAME_MODEL = "scored_with_this_model"
    """The model already scored it with the same prompt and threshold."""
    OTHER_MODEL = "scored_otherwise"
    """Another model scored it, or the same one with another prompt; `--all` scores it again."""


@dataclass(frozen=True, slots=True)
class ScoringQuery:
    """Filter over the stored trajectories; None: no restriction."""

    split: Split | None = None
    iteration: int | None = None
    selection: ScoringSelection | None = None
    """None: `all` with ids, else `unjudged`."""
    ids: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class PendingTrajectory:
    """One trajectory that will be scored."""

    id: str
    split: Split
    iteration: int
    previous: bool | None = None
    """The scorer's latest verdict, of checks also that of the episode's end; None without one."""
    environment: bool | None = None
    """The environment's own verdict; None if it has none."""
    probability: float | None = None
    """Stored probability of a reward model whose threshold changed; the model is not queried again."""


@dataclass(frozen=True, slots=True)
class ScoreResult:
    """A scorer's result for one trajectory."""

    judgement: Judgement | None
    """The judgement to store. None: nothing is stored and the trajectory stays pending."""
    success: bool | None
    problem: str = ""
    """Reason for a missing verdict; counts towards the limit of consecutive failures."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Additional fields of the trajectory's event."""
    counts: Mapping[str, float] = field(default_factory=dict)
    """Increments of the scorer's own counters."""


@dataclass(slots=True)
class ScoringCounts:
    """The counters of one command."""

    owed: int
    """Trajectories to score."""
    done: int = 0
    verdicts: int = 0
    successes: int = 0
    failed: int = 0
    """Trajectories without a verdict because the model failed."""
    own: Counter[str] = field(default_factory=Counter)
    with_previous: Agreement = field(default_factory=Agreement)
    with_environment: Agreement = field(default_factory=Agreement)

    def add(self, pending: PendingTrajectory, result: ScoreResult) -> None:
        """Count one result."""
        self.done += 1
        self.verdicts += result.success is not None
        self.successes += bool(result.success)
        self.failed += bool(result.problem)
        self.own.update(result.counts)
        self.with_previous.add(result.success, pending.previous)
        self.with_environment.add(result.success, pending.environment)

    @property
    def success_rate(self) -> float | None:
        """Successes divided by verdicts; None without verdicts."""
        return ratio(self.successes, self.verdicts)

    @property
    def interval(self) -> list[float]:
        """95 % Wilson interval of the success rate."""
        return round_wilson(self.successes, self.verdicts)


class Scorer(Protocol):
    """A source of verdicts on stored trajectories: the rubric judge, an outcome reward model, or the tasks' checks."""

    stage: str
    """The command and the summary event."""
    event: str
    """Name of the event of one trajectory."""
    source: JudgementSource
    noun: str
    """Noun for a result in progress messages, such as `verdict`."""
    failure: str
    """Label of failed results in progress messages, such as `judge_failed`."""
    hint: str
    """Advice appended to the error after too many consecutive failures."""
    skip_reasons: tuple[ScoringSkip, ...]
    settings_digest: str
    """SHA-256 of every input of a verdict other than the trajectory."""
    changed_at: str = ""
    """When the folder of the model last changed: verdicts from before are another model's. Empty: it has none."""
    concurrency: int
    """Maximum number of trajectories scored concurrently."""

    def find_skip_reason(
        self, trajectory: Trajectory, last: Judgement | None, selection: ScoringSelection
    ) -> ScoringSkip | None:
        """Return the reason to skip a trajectory, or None. `last`: the newest judgement of this source."""

    def build_judgement(self, id_: str, model: str, seconds: float, **verdict: Any) -> Judgement:
        """Return the judgement of a trajectory by this source."""
        facts = {"source": self.source, "models": {"verdict": model}, "seconds": round(seconds, 3)}
        return Judgement.model_validate({"trajectory": id_, "judged_at": now(), **facts, **verdict})

    def describe_plan(self, pending: Sequence[PendingTrajectory]) -> dict[str, object]:
        """Return the scorer-specific fields of a plan."""
        return {}

    async def score(self, pending: PendingTrajectory, trajectory: Trajectory) -> ScoreResult:
        """Score a trajectory. A failure of the model is returned as a result, not raised."""

    def summarize(self, counts: ScoringCounts, seconds: float) -> dict[str, Any]:
        """Return the summary event."""

    @staticmethod
    def format_summary(summary: Mapping[str, Any]) -> str:
        """Return a summary as one line."""

    async def close(self) -> None:
        """Close the connections."""
        return


@dataclass(frozen=True, slots=True)
class ScoringPlan:
    """Plan of `webgym judge` or `webgym score`."""

    scorer: Scorer
    pending: tuple[PendingTrajectory, ...]
    skipped: Mapping[ScoringSkip, int]
    """Number of trajectories."""
    damaged: tuple[str, ...]

    @property
    def to_ask(self) -> int:
        """Number of trajectories for which a model is queried."""
        return sum(one.probability is None for one in self.pending)

    def to_json(self) -> dict[str, object]:
        """Return the output of `--dry-run`."""
        return {
            "event": "plan",
            "stage": self.scorer.stage,
            "owed": len(self.pending),
            **{f"skipped_{reason}": self.skipped.get(reason, 0) for reason in self.scorer.skip_reasons},
            "owed_by_iteration": dict(Counter(f"{one.split} {one.iteration}" for one in self.pending)),
            **self.scorer.describe_plan(self.pending),
            "settings_digest": self.scorer.settings_digest,
        }


def plan_scoring(run: RunDir, scorer: Scorer, query: ScoringQuery) -> ScoringPlan:
    """Return the plan. Raises `UsageError` for an unknown id, `MissingStageError` without trajectories."""
    corrupt, ids = list[str](), set[str]()
    pending: list[PendingTrajectory] = []
    skipped: Counter[ScoringSkip] = Counter()
    last_attempts: dict[tuple[str, ...], tuple[int, str]] = {}
    selection = query.selection or (ScoringSelection.UNJUDGED if query.ids is None else ScoringSelection.ALL)
    for trajectory, judgements in iter_selected(run, query, corrupt):
        ids.add(trajectory.id)
        last = newest_judgement(judgements, scorer.source)
        trajectory = with_verdict(trajectory, newest_judgement(judgements, "check"))  # it counts as the environment's
        if can_check(trajectory):
            series = name_series(trajectory.policy, trajectory.split)
            attempts_of = (series, str(trajectory.iteration), trajectory.episode)
            attempt = trajectory.attempt, trajectory.id
            last_attempts[attempts_of] = max(attempt, last_attempts.get(attempts_of, attempt))
        reason = scorer.find_skip_reason(trajectory, last, selection)
        if reason is None:
            pending.append(_build_pending(trajectory, newest_verdict(judgements, scorer.source), scorer))
        else:
            skipped[reason] += 1
    _require_any(run, query, ids)
    if scorer.source == "check":  # the others skip failures, so that one attempt of each episode is left
        counting = {id_ for _, id_ in last_attempts.values()}
        skipped.update(ScoringSkip.REPLACED for one in pending if one.id not in counting)
        pending = [one for one in pending if one.id in counting]
    return ScoringPlan(scorer, tuple(pending), skipped, tuple(corrupt))


def load_pending(run: RunDir, pending: Iterable[PendingTrajectory]) -> Iterator[tuple[PendingTrajectory, Trajectory]]:
    """Yield each pending trajectory with its record, read one by one: they might not fit into memory together."""
    parts: dict[tuple[Split, int], dict[str, PendingTrajectory]] = {}
    for one in pending:
        parts.setdefault((one.split, one.iteration), {})[one.id] = one
    for (split, iteration), wanted in parts.items():
        for trajectory in scan_stored(run, split, iteration):
            if (one_pending := wanted.get(trajectory.id)) is not None:
                yield one_pending, trajectory


def iter_selected(run: RunDir, query: ScoringQuery, corrupt: list[str]) -> Iterator[tuple[Trajectory, list[Judgement]]]:
    """Yield the matching trajectories as stored, each with its judgements, oldest first."""
    wanted = map_known(frozenset, query.ids)
    for split in Split if query.split is None else (query.split,):
        for iteration in run.list_iterations(split):
            if query.iteration not in (None, iteration):
                continue
            judgements = read_judgements(run, split, iteration, corrupt)
            for trajectory in scan_stored(run, split, iteration, corrupt):
                if wanted is None or trajectory.id in wanted:
                    yield trajectory, judgements.get(trajectory.id, [])


def _build_pending(trajectory: Trajectory, last: Judgement | None, scorer: Scorer) -> PendingTrajectory:
    place, environment = (trajectory.id, trajectory.split, trajectory.iteration), environment_verdict(trajectory)
    if last is None:
        previous = trajectory.outcome.success if scorer.source == "check" else None
        return PendingTrajectory(*place, previous, environment)
    is_same = last.settings_digest == scorer.settings_digest and last.judged_at >= scorer.changed_at
    return PendingTrajectory(*place, last.success, environment, last.probability if is_same else None)


def _require_any(run: RunDir, query: ScoringQuery, ids: set[str]) -> None:
    """Raise `UsageError` for an unknown id, `MissingStageError` if no trajectory matches."""
    if missing := [name for name in query.ids or () if name not in ids]:
        raise refuse_unknown(run, missing)
    if not ids and query.ids is None:
        named = f"{query.split or ''} trajectories".lstrip()
        of = when(query.iteration is not None, f" of iteration {query.iteration}")
        raise MissingStageError(f"{run.root}: no {named}{of} to judge", hint=f"webgym rollout {run.root}")
