"""Synchronous loop; `async_loop` is the asynchronous one.

Iteration k evaluates policy version k, collects its training episodes, prepares a dataset, trains version k+1 and
loads it into the server. Each stage does only the work that is owed, so a restarted loop continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from webgym_cli.errors import BudgetSpentError, OutOfTimeError, UsageError, WebGymError
from webgym_cli.loop import preparation, rollouts, training
from webgym_cli.loop.async_loop import AsyncLoop
from webgym_cli.loop.context import StageContext
from webgym_cli.loop.loop_plan import Deadline, LoopPlan, Phase, choose_policy, is_imported
from webgym_cli.loop.phases import Phases, phase_episodes, phase_of
from webgym_cli.loop.rollout_setup import require_success
from webgym_cli.loop.training import current_data
from webgym_cli.records.events import Event, make_event, rename_event
from webgym_cli.records.series import ORACLE
from webgym_cli.records.stored_events import EvaluationEvent
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import read_plan
from webgym_cli.store.checkpoints import version
from webgym_cli.store.metrics import read_valid_events
from webgym_cli.train.working_dir import partial_folder


@dataclass(slots=True)
class Loop:
    """Execution of a planned loop."""

    plan: LoopPlan
    context: StageContext
    phases: Phases | None = None
    """Collects the training episodes of curriculum phases."""
    deadline: Deadline | None = None
    failures: list[Event] = field(default_factory=list)
    """Events of failed stages that `keep_going` skipped, oldest first."""
    _error: WebGymError | None = None
    """Error of the last skipped stage."""
    _lost_updates: int = 0
    """Number of failed trainings of the current version."""

    async def execute(self) -> list[dict[str, Any]]:
        """Run the planned iterations and return all evaluations.

        Raises the error of a stage; with `keep_going` only the last one, and only if trainings are missing at the end.
        Raises `BelowThresholdError` when the last evaluation is below `min_success`.
        """
        self._note_phases()
        asynchronous = self.plan.mode == "async"
        for _ in range(self.plan.demonstrations if asynchronous else self.plan.rounds):
            if self.plan.phase is not Phase.UPDATE:
                await self._stage("evaluation", self._evaluate())
                if self.plan.has_reached(self.context.run, self._version):
                    break
                await self._stage("rollout", self._collect())
            if self.plan.phase is not Phase.ROLLOUT:
                await self._update()
        else:
            if asynchronous and self._version < self.plan.iterations:
                await AsyncLoop(self.plan, self.context, self.deadline).execute()
            else:
                await self._stage("evaluation", self._evaluate())
            if self._error and self._version < self.plan.start + self.plan.trainings:
                raise self._error
        return self._judged()

    async def _evaluate(self) -> None:
        """Run the held-out episodes with the current policy if its evaluation is due."""
        if self.plan.is_evaluation_due(self.context.run):
            summary = await rollouts.rollout(self.context, Split.TEST, self.context.settings.rollout.policy)
            self.context.record(rename_event(summary, "evaluation"))

    async def _collect(self) -> None:
        """Collect the iteration's training episodes, plus as many again for each training that failed on them."""
        run, settings, times = self.context.run, self.context.settings, 1 + self._lost_updates
        if self.phases is not None and phase_of(settings, self._version):
            if not self._is_in_training(times * phase_episodes(run, settings, self._version)):
                await self.phases.rollout(self._version, times)
            return
        if is_imported(run, settings, self._version):
            return
        policy = choose_policy(settings, self._version)
        demonstrations = settings.loop.demonstration_episodes if policy == ORACLE else None
        episodes = times * (demonstrations or settings.rollout.episodes)
        if not self._is_in_training(episodes):
            await rollouts.rollout(self.context, Split.TRAIN, policy, episodes)

    def _is_in_training(self, episodes: int) -> bool:
        """Whether an interrupted training goes on with the iteration's data, which has so many planned episodes.

        Its failed episodes are not attempted again: with one more in the data the training would start over.
        """
        run = self.context.run
        data = current_data(run, self.context.settings).find_written(run)
        begun = data is not None and partial_folder(run, data.model_name).is_dir()
        if not begun or self.plan.phase is not Phase.BOTH:
            return False
        return len(read_plan(run, Split.TRAIN, self._version)) >= episodes

    async def _update(self) -> None:
        """Train the next policy version on the collected episodes."""
        before = self._version
        await self._stage("update", self._trained())
        if self._version > before:
            self._lost_updates = 0
        else:
            self._lost_updates += 1

    async def _trained(self) -> None:
        if self.phases is not None:
            self.phases.emit_step(self._version, "train")
        await preparation.prepare(self.context)
        await training.train(self.context)
        self._note_phases()

    def _note_phases(self) -> None:
        if self.phases is not None:
            self.phases.record_finished()

    async def _stage(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a stage; with `keep_going`, record an error other than `UsageError` and continue.

        Raises `OutOfTimeError` if it can't end before the deadline, `BudgetSpentError` at a limit of `cost`.
        """
        try:
            if self.deadline is not None:
                self.deadline.require_time(name)
            await work
        except (UsageError, OutOfTimeError, BudgetSpentError):
            work.close()
            raise
        except WebGymError as error:
            if not self.plan.keep_going:
                raise
            self._error = error
            message = f"{name} of iteration {self._version} failed: {error}"
            facts = {"stage": name, "iteration": self._version, "code": error.exit_code}
            self.failures.append(make_event("stage_failed", **facts, message=message))
            self.context.sink(self.failures[-1])
            await self.context.stop_servers()  # the next stage starts fresh ones

    @property
    def _version(self) -> int:
        return version(self.context.run)

    def _judged(self) -> list[dict[str, Any]]:
        """Return all evaluations. Raises `BelowThresholdError` if the last one is below `min_success`."""
        evaluations = list(read_valid_events(self.context.run, EvaluationEvent))
        if evaluations:
            require_success(evaluations[-1], self.plan.min_success)
        return evaluations
