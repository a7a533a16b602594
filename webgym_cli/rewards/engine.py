"""The scoring engine: scores stored trajectories concurrently and stores each judgement."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

from webgym_cli.jobs.workers import Failures, run_workers
from webgym_cli.records.events import AgreementFacts, Event, EventSink, make_event
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.statistics import wilson
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rewards.selection import PendingTrajectory, ScoringPlan, ScoringSelection, ScoringSkip, load_pending
from webgym_cli.store.blocklist import Blocklist
from webgym_cli.store.buffer import append_judgement
from webgym_cli.store.run import RunDir

SummaryT_co = TypeVar("SummaryT_co", bound=Event, covariant=True)


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
class Agreement:
    """Agreement rate of two sources of verdicts on the same trajectories."""

    both: int = 0
    """Trajectories with both verdicts."""
    same: int = 0

    def add(self, ours: bool | None, theirs: bool | None) -> None:
        """Count a trajectory, unless one of the two verdicts is missing."""
        if ours is not None and theirs is not None:
            self.both += 1
            self.same += ours is theirs

    def to_json(self) -> AgreementFacts:
        """Return the counts and the agreement rate (None without common trajectories)."""
        return {"both": self.both, "same": self.same, "rate": round(self.same / self.both, 4) if self.both else None}


@dataclass(slots=True)
class ScoringCounts:
    """The counters of one command."""

    done: int = 0
    verdicts: int = 0
    """Trajectories with a verdict."""
    successes: int = 0
    failed: int = 0
    """Trajectories without a verdict because the model failed."""
    own: Counter[str] = field(default_factory=Counter)
    """The scorer's own counters."""
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
        return round(self.successes / self.verdicts, 4) if self.verdicts else None

    @property
    def interval(self) -> list[float]:
        """95 % Wilson interval of the success rate."""
        return [round(bound, 4) for bound in wilson(self.successes, self.verdicts)]


class Scorer(Protocol[SummaryT_co]):
    """A source of verdicts on stored trajectories: the rubric judge, or an outcome reward model."""

    stage: str
    """The command and the summary event."""
    event: str
    """Name of the event of one trajectory."""
    source: Literal["judge", "orm"]
    noun: str
    """Noun for a result in progress messages, such as `verdict`."""
    failure: str
    """Label of failed results in progress messages, such as `judge_failed`."""
    hint: str
    """Advice appended to the error after too many consecutive failures."""
    skip_reasons: tuple[ScoringSkip, ...]
    settings_digest: str
    """SHA-256 of every input of a verdict other than the trajectory."""
    concurrency: int
    """Maximum number of trajectories scored concurrently."""

    def find_skip_reason(
        self, trajectory: Trajectory, last: Judgement | None, selection: ScoringSelection
    ) -> ScoringSkip | None:
        """Return the reason to skip a trajectory, or None. `last`: the newest judgement of this source."""
        ...

    def describe_plan(self, pending: Sequence[PendingTrajectory]) -> dict[str, object]:
        """Return the scorer-specific fields of a plan."""
        ...

    def open(self, run: RunDir) -> None:
        """Create the client before the first trajectory; optional. Raises `SettingsError`."""
        return

    async def score(self, pending: PendingTrajectory, trajectory: Trajectory) -> ScoreResult:
        """Score a trajectory. A failure of the model is returned as a result, not raised."""
        ...

    def summarize(self, counts: ScoringCounts, seconds: float) -> SummaryT_co:
        """Return the summary event."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(slots=True)
class ScoringEngine(Generic[SummaryT_co]):
    """Runs the plan of one `webgym judge` or `webgym score` command."""

    plan: ScoringPlan
    run: RunDir
    scorer: Scorer[SummaryT_co]
    sink: EventSink
    counts: ScoringCounts = field(default_factory=ScoringCounts)
    _failures: Failures = field(init=False)
    _blocklist: Blocklist = field(init=False)

    def __post_init__(self) -> None:
        """Limit the concurrency to the number of pending trajectories."""
        self._blocklist = Blocklist(self.run, 0)
        pending = len(self.plan.pending)
        self._failures = Failures(min(self.scorer.concurrency, pending), pending)

    async def execute(self) -> SummaryT_co:
        """Score the pending trajectories and return the summary event.

        Raises `WebGymError` after too many consecutive failures; earlier judgements are already stored.
        """
        start = time.monotonic()
        self.scorer.open(self.run)
        waiting = load_pending(self.run, self.plan.pending)
        try:
            await run_workers(self._failures.workers, lambda: self._work(waiting))
        finally:
            await self.scorer.close()
        seconds = round(time.monotonic() - start, 2)
        return self.scorer.summarize(self.counts, seconds)

    async def _work(self, waiting: Iterator[tuple[PendingTrajectory, Trajectory]]) -> None:
        for pending, trajectory in waiting:
            result = await self.scorer.score(pending, trajectory)
            if result.judgement is not None:
                append_judgement(self.run, pending.split, pending.iteration, result.judgement)
                if result.judgement.success is not None:
                    self._blocklist.lift(pending.id)
            self.counts.add(pending, result)
            self.sink(self._describe(pending, trajectory, result))
            self._failures.record(result.problem, self.scorer.hint)

    def _describe(self, pending: PendingTrajectory, trajectory: Trajectory, result: ScoreResult) -> Event:
        """Return the event of one trajectory."""
        counts = self.counts
        rate = f"{counts.successes / counts.verdicts:.0%} success" if counts.verdicts else f"no {self.scorer.noun} yet"
        failed = f"  {self.scorer.failure} {counts.failed}" if counts.failed else ""
        facts = {"failure_detail": result.problem or None, "environment": pending.environment, **result.facts}
        return make_event(
            self.scorer.event,
            id=pending.id,
            task=trajectory.task.id,
            success=result.success,
            **facts,
            bar=self.scorer.stage,
            done=counts.done,
            total=len(self.plan.pending),
            facts=f"{rate}{failed}",
        )
