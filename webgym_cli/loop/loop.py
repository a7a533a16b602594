"""The order of the stages: the only file that knows it.

An iteration k is: evaluate policy version k, collect its training episodes, prepare a dataset, train version k+1, give
it to the server. Each stage does only what is owed, so running the loop again takes it up where it stopped.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.errors import UsageError, WebGymError
from webgym_cli.loop.phases import Phases, phase_of
from webgym_cli.loop.pipeline import Pipeline
from webgym_cli.loop.rollout_setup import plan_current_rollout, require_success
from webgym_cli.records.events import Event, make_event, rename_event
from webgym_cli.records.stored_events import EvaluationEvent
from webgym_cli.records.task import Split
from webgym_cli.rollout.resources import ORACLE
from webgym_cli.store.buffer import list_iterations as stored_iterations
from webgym_cli.store.checkpoints import version
from webgym_cli.store.metrics import read_valid_events
from webgym_cli.store.run import RunDir


class Phase(StrEnum):
    """The next half of an iteration: rollout or update."""

    ROLLOUT = "rollout"
    UPDATE = "update"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """What a loop will do. Policies are numbered by the trainings behind them: version 0 is the base model."""

    phase: Phase
    start: int
    """The version that acts now."""
    iterations: int
    """Trainings that the run shall have in all."""
    evaluations: tuple[int, ...]
    """The versions that are still to be evaluated, if all goes well."""
    until: float | None = None
    """Success rate of an evaluation at which the loop ends early."""
    min_success: float | None = None
    """Success rate of the last evaluation below which the loop ends with exit code 5."""
    keep_going: bool = False
    """Whether a failed stage leaves the loop going."""

    @property
    def rounds(self) -> int:
        """How often the stages are gone through: half an iteration needs the other half before it can be repeated."""
        left = max(0, self.iterations - self.start)
        return left if self.phase is Phase.BOTH else min(1, left)

    @property
    def trainings(self) -> int:
        """Trainings still to be done by this loop."""
        return 0 if self.phase is Phase.ROLLOUT else self.rounds

    def to_json(self) -> dict[str, Any]:
        """Return what `--dry-run` prints."""
        return {
            "event": "plan",
            "stage": "loop",
            "phase": self.phase,
            "trainings_done": self.start,
            "trainings_to_do": self.trainings,
            "evaluations": list(self.evaluations),
            "until": self.until,
            "min_success": self.min_success,
            "keep_going": self.keep_going,
        }


def plan_loop(
    run: RunDir,
    settings: Settings,
    *,
    phase: Phase = Phase.BOTH,
    iterations: int | None = None,
    eval_every: int | None = None,
    until: float | None = None,
    min_success: float | None = None,
    keep_going: bool = False,
) -> LoopPlan:
    """Return what a loop has to do; None: as the settings say.

    Raises `UsageError` where the tasks or the policy of the first rollouts can't be used, and where a success rate is
    asked for that nothing measures.
    """
    every = settings.loop.eval_every if eval_every is None else eval_every
    start, wanted = version(run), iterations or settings.loop.iterations
    if (until is not None or min_success is not None) and (not every or phase is Phase.UPDATE):
        raise UsageError(
            "--until and --min-success look at evaluations, and this loop makes none",
            hint="add --eval-every 1, without --phase update",
        )
    last = wanted if phase is Phase.BOTH else start
    numbers = range(start if start or settings.loop.val_before_train else 1, max(start, last) + 1)
    due = [number for number in numbers if _is_due(number, every, max(start, last))]
    known = {event["iteration"] for event in read_valid_events(run, EvaluationEvent)}
    evaluations = () if phase is Phase.UPDATE else tuple(number for number in due if number not in known)
    plan = LoopPlan(phase, start, wanted, evaluations, until, min_success, keep_going)
    if evaluations:
        plan_current_rollout(run, settings, Split.TEST, settings.rollout.policy)
    if plan.rounds and phase is not Phase.UPDATE and not _is_imported(run, settings, start):
        plan_current_rollout(run, settings, Split.TRAIN, _choose_policy(settings, start))
    return plan


def _is_due(number: int, every: int, last: int) -> bool:
    """Whether a version is evaluated: each `every`-th one, and the last; none where `every` is 0."""
    return every > 0 and (number % every == 0 or number == last)


def _choose_policy(settings: Settings, iteration: int) -> str:
    """Return the policy of an iteration's training episodes: the expert or `rollout.policy`."""
    return ORACLE if iteration < settings.loop.demonstration_iterations else settings.rollout.policy


def _is_imported(run: RunDir, settings: Settings, iteration: int) -> bool:
    """Whether an iteration's demonstrations are there without an expert: they were imported, so no plan has them."""
    imported = iteration in stored_iterations(run, Split.TRAIN) and not run.plan(Split.TRAIN, iteration).is_file()
    return imported and _choose_policy(settings, iteration) == ORACLE


@dataclass(slots=True)
class Loop:
    """A planned loop at work on its run."""

    plan: LoopPlan
    pipeline: Pipeline
    phases: Phases | None = None
    """What collects the training episodes of a curriculum's phases."""
    failures: list[Event] = field(default_factory=list)
    """The stages that failed and were gone past, oldest first."""
    _error: WebGymError | None = None
    """The newest error that was gone past."""
    _lost_updates: int = 0
    """Trainings of the current version's data that failed."""

    async def execute(self) -> list[dict[str, Any]]:
        """Bring the run as far as planned and return all its evaluations.

        Raises the error of a stage; with `keep_going` the last one, and only if the run got not as far as planned.
        Raises `BelowThresholdError` when the last evaluation is below `min_success`.
        """
        self._note_phases()
        for _ in range(self.plan.rounds):
            if self.plan.phase is not Phase.UPDATE:
                await self._stage("evaluation", self._evaluate())
                if self._good_enough():
                    break
                await self._stage("rollout", self._collect())
            if self.plan.phase is not Phase.ROLLOUT:
                await self._update()
        else:
            await self._stage("evaluation", self._evaluate())
            if self._error and self._version < self.plan.start + self.plan.trainings:
                raise self._error
        return self._judged()

    async def _evaluate(self) -> None:
        """Run the held-out episodes with the current policy, once a policy version, where that is planned."""
        if self._version in self.plan.evaluations and self._evaluation() is None:
            summary = await self.pipeline.rollout(Split.TEST, self.pipeline.settings.rollout.policy)
            self.pipeline.record(rename_event(summary, "evaluation"))

    async def _collect(self) -> None:
        """Collect the iteration's training episodes; as many again for each training that failed on them."""
        settings = self.pipeline.settings
        if self.phases is not None and phase_of(settings, self._version):
            await self.phases.rollout(self._version, 1 + self._lost_updates)
            return
        if _is_imported(self.pipeline.run, settings, self._version):
            return
        policy = _choose_policy(settings, self._version)
        demonstrations = settings.loop.demonstration_episodes if policy == ORACLE else None
        episodes = demonstrations or settings.rollout.episodes
        await self.pipeline.rollout(Split.TRAIN, policy, episodes * (1 + self._lost_updates))

    async def _update(self) -> None:
        """Make the next policy version of what was collected."""
        before = self._version
        await self._stage("update", self._trained())
        self._lost_updates = 0 if self._version > before else self._lost_updates + 1

    async def _trained(self) -> None:
        if self.phases is not None:
            self.phases.emit_step(self._version, "train")
        await self.pipeline.prepare()
        await self.pipeline.train()
        self._note_phases()

    def _note_phases(self) -> None:
        if self.phases is not None:
            self.phases.record_finished()

    async def _stage(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Do a stage's work; go past what fails, where that is wanted and another try may end better."""
        try:
            await work
        except UsageError:
            raise
        except WebGymError as error:
            if not self.plan.keep_going:
                raise
            self._error = error
            message = f"{name} of iteration {self._version} failed: {error}"
            facts = {"stage": name, "iteration": self._version, "code": error.exit_code}
            self.failures.append(make_event("stage_failed", **facts, message=message))
            self.pipeline.sink(self.failures[-1])
            await self.pipeline.serving.stop()  # the next stage begins with a fresh one

    @property
    def _version(self) -> int:
        return version(self.pipeline.run)

    def _evaluation(self) -> dict[str, Any] | None:
        """Return the current policy's evaluation."""
        evaluations = read_valid_events(self.pipeline.run, EvaluationEvent)
        return next((event for event in evaluations if event["iteration"] == self._version), None)

    def _good_enough(self) -> bool:
        """Whether the current policy's evaluation reached what the loop was run for."""
        rate = (self._evaluation() or {}).get("success_rate")
        return self.plan.until is not None and rate is not None and rate >= self.plan.until

    def _judged(self) -> list[dict[str, Any]]:
        """Return all evaluations, the last one good enough."""
        evaluations = list(read_valid_events(self.pipeline.run, EvaluationEvent))
        if evaluations:
            require_success(evaluations[-1], self.plan.min_success)
        return evaluations
