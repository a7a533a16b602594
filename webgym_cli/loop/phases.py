"""Phases of a curriculum: iterations that train on new tasks, generated from failed ones.

A phase is an iteration of the run: training, evaluation and resumption work as in any other. Its state is on disk: the
task file, the episodes and their scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.curriculum.seeds import has_new_tasks
from webgym_cli.errors import SettingsError, UsageError
from webgym_cli.loop import rollouts, scoring
from webgym_cli.loop.context import StageContext
from webgym_cli.loop.generation import generate_next, require_generator, resolve_settings, sibling_path
from webgym_cli.loop.loop_plan import LoopPlan, plan_loop
from webgym_cli.loop.scoring import resolve_orm_model
from webgym_cli.records.checkpoint import Checkpoint
from webgym_cli.records.events import make_event, rename_event
from webgym_cli.records.statistics import ratio
from webgym_cli.records.stored_events import PhaseEvent
from webgym_cli.records.task import Split
from webgym_cli.rewards.judge.client import require_judge
from webgym_cli.rewards.judge.scorer import JudgeScorer
from webgym_cli.rewards.orm.scorer import OrmScorer, require_orm
from webgym_cli.rewards.selection import Scorer, ScoringQuery, plan_scoring
from webgym_cli.rollout.plan import plan_rollout, usual_episodes
from webgym_cli.store.checkpoints import checkpoints, policy_path, version
from webgym_cli.store.index.query import open_index
from webgym_cli.store.metrics import append_event, read_valid_events
from webgym_cli.store.run import RunDir, create_or_open
from webgym_cli.store.status import lock_run
from webgym_cli.tasks.source import open_tasks
from webgym_cli.util.files import read_lines
from webgym_cli.util.optional import when

_TRIED = """
SELECT count(DISTINCT episode) AS episodes, count(success) AS scored, count(*) FILTER (WHERE success) AS successes
FROM trajectories WHERE split = 'train' AND iteration = ?
"""


def phase_of(settings: Settings, iteration: int) -> int:
    """Return the phase number of an iteration, from 1; 0 for an iteration on demonstrations, before the phases."""
    return max(0, iteration - settings.loop.demonstration_iterations + 1)


def last_iteration(settings: Settings) -> int:
    """Return the number of trainings after the last phase."""
    return settings.loop.demonstration_iterations + settings.curriculum.phases


def phase_episodes(run: RunDir, settings: Settings, iteration: int) -> int:
    """Return the number of training episodes of a phase; before its tasks exist, the planned number."""
    if run.new_tasks(iteration).is_file():
        return usual_episodes(run, settings, Split.TRAIN, iteration)
    return settings.curriculum.tasks_per_phase * settings.agent.group_size


@dataclass(slots=True)
class Phases:
    """Execution of a run's phases."""

    context: StageContext

    async def rollout(self, iteration: int, times: int = 1) -> None:
        """Run the pending steps of a phase before training: generate its tasks, roll out, score.

        `times`: multiplier of the phase's episodes.
        """
        run, settings = self.context.run, self.context.settings
        new = run.new_tasks(iteration)
        if settings.curriculum.generate and not new.is_file():
            await self._generate_tasks(iteration, new)
        self.emit_step(iteration, "rollout")
        episodes = times * phase_episodes(run, settings, iteration)
        await rollouts.rollout(self.context, Split.TRAIN, settings.rollout.policy, episodes)
        self.emit_step(iteration, "score")
        await _score(self.context, iteration)

    def emit_step(self, iteration: int, step: str) -> None:
        """Emit the start of a step of a phase; nothing for iterations before the phases."""
        number, last = phase_of(self.context.settings, iteration), self.context.settings.curriculum.phases
        if number:
            message = f"phase {number} of {last}: {step}"
            self.context.sink(make_event("phase_step", phase=number, phases=last, step=step, message=message))

    def record_finished(self) -> None:
        """Record each trained phase that is not in the metrics yet."""
        run, settings = self.context.run, self.context.settings
        noted = {event["phase"] for event in read_valid_events(run, PhaseEvent)}
        for checkpoint in checkpoints(run):
            number = phase_of(settings, checkpoint.version - 1)
            if number and number not in noted:
                facts = _summarize(run, checkpoint, number, settings.curriculum.phases)
                new = facts["new_tasks"]
                tasks = "the original tasks" if new is None else f"{new} new tasks"
                solved = f"{facts['successes']} of {facts['scored']} scored episodes solved"
                done = f"phase {number} of {facts['phases']} is done: {tasks}, {solved}"
                self.context.record(make_event(**facts), f"{done}, policy version {facts['version']}")

    async def _generate_tasks(self, iteration: int, out: Path) -> None:
        """Generate a phase's tasks from those that failed in earlier phases, or, for the first phase, in a survey."""
        if phase_of(self.context.settings, iteration) == 1:
            await self._survey(iteration, out)
            return
        self.emit_step(iteration, "generate")
        await self.context.release_gpus()  # a critic or an outcome reward model may need the GPUs
        await generate_next(self.context, out)

    async def _survey(self, iteration: int, out: Path) -> None:
        """Attempt the original tasks in a nested run and generate new tasks from those that failed."""
        run, settings = self.context.run, self.context.settings
        policy, loop = {"base_model": str(policy_path(run, settings))}, {"demonstration_iterations": 0}
        # not trained on: under a policy gradient, groups whose rewards are all equal would be replaced by more episodes
        train, log = {"algorithm": "sft"}, {"tracking": "disabled"}
        surveyed = settings.with_changes(policy_config=policy, loop=loop, train=train, log_config=log)
        with lock_run(run.survey, f"curriculum {run.root}"):
            create_or_open(run.survey, surveyed)
            # the survey uses the same policy and its running servers
            outer = self.context
            survey = StageContext(run.survey, surveyed, outer.logs, outer.sink, outer.serving, outer.budget)
            self.emit_step(iteration, "survey")
            summary = await rollouts.rollout(survey, Split.TRAIN, settings.rollout.policy, survey_episodes(settings))
            append_event(run, rename_event(summary, "survey", iteration=iteration))
            await _score(survey, 0)
            self.emit_step(iteration, "generate")
            await survey.release_gpus()
            append_event(run, make_event(**await generate_next(survey, out)))


def survey_episodes(settings: Settings) -> int:
    """Return the number of survey episodes, by default one group per task."""
    wanted = settings.curriculum.survey_episodes
    return wanted or len(open_tasks(settings.tasks.train)) * settings.agent.group_size


async def _score(context: StageContext, iteration: int) -> None:
    """Score the unscored episodes of an iteration with the outcome reward model or the judge."""
    run, settings = context.run, context.settings
    if settings.curriculum.score == "environment":
        return
    by_orm = settings.curriculum.score == "orm"
    scorer: Scorer = OrmScorer(settings.orm) if by_orm else JudgeScorer(settings.judge, run)
    plan = plan_scoring(run, scorer, ScoringQuery(split=Split.TRAIN, iteration=iteration))
    if plan.pending:
        if by_orm:
            await context.release_gpus()
        await scoring.score(context, plan)


def _summarize(run: RunDir, checkpoint: Checkpoint, number: int, last: int) -> dict[str, Any]:
    """Return the summary of a phase, read from its files."""
    with open_index(run) as index:
        tried = index.one(_TRIED, [checkpoint.iteration])
    new = run.new_tasks(checkpoint.iteration)
    return {
        "event": "phase",
        "phase": number,
        "phases": last,
        "iteration": checkpoint.iteration,
        "version": checkpoint.version,
        "name": checkpoint.name,
        "new_tasks": _lines(new),
        "turned_down": _lines(sibling_path(new, "rejected")),
        "episodes": tried["episodes"],
        "scored": tried["scored"],
        "successes": tried["successes"],
        "success_rate": ratio(tried["successes"], tried["scored"]),
    }


def _lines(path: Path) -> int | None:
    """Return the number of lines of a file, None if it does not exist."""
    return sum(1 for _ in read_lines(path)) if path.is_file() else None


@dataclass(frozen=True, slots=True)
class CurriculumPlan:
    """Plan of `webgym curriculum`."""

    loop: LoopPlan
    baseline: str
    """Phase 0: `demonstrations`, or the base model."""
    demonstrations: int
    """Number of remaining trainings on demonstrations."""
    phases: tuple[dict[str, Any], ...]
    """Unfinished phases with their remaining steps."""
    how: dict[str, Any]
    """Curriculum settings to report."""

    def to_json(self) -> dict[str, Any]:
        """Return what `--dry-run` prints."""
        loop = {name: value for name, value in self.loop.to_json().items() if name != "phase"}
        return loop | {
            "stage": "curriculum",
            "baseline": self.baseline,
            "demonstrations_to_do": self.demonstrations,
            "phases_to_do": list(self.phases),
            **self.how,
        }


def plan_curriculum(run: RunDir, settings: Settings, **options: Any) -> CurriculumPlan:
    """Return the plan of a curriculum. `options`: those of `plan_loop` except `phase` and `iterations`.

    Raises the errors of `plan_loop`, `SettingsError` for settings with which no phase can run, and `UsageError` if the
    next phase's iteration was started on other tasks.
    """
    _require(run, settings)
    loop = plan_loop(run, settings, iterations=last_iteration(settings), **options)
    iterations = range(loop.start, loop.start + loop.trainings)
    demonstrated, how = settings.loop.demonstration_iterations, settings.curriculum
    return CurriculumPlan(
        loop=loop,
        baseline="demonstrations" if demonstrated else settings.policy_config.base_model,
        demonstrations=max(0, demonstrated - loop.start),
        phases=tuple(_phase(run, settings, loop, number) for number in iterations if phase_of(settings, number)),
        how={name: getattr(how, name) for name in ("tasks_per_phase", "generate", "score")}
        | when(how.generate, {"survey_episodes": survey_episodes(settings)}),
    )


def phase_settings(settings: Settings) -> Settings:
    """Return the settings of the phases: the number of new tasks per phase, and model names queried from servers.

    Raises `SettingsError`.
    """
    how = settings.curriculum
    if how.generate:
        settings = resolve_settings(settings.with_changes(generate={"tasks": how.tasks_per_phase}))
    return resolve_orm_model(settings) if how.score == "orm" else settings


def _phase(run: RunDir, settings: Settings, loop: LoopPlan, iteration: int) -> dict[str, Any]:
    steps = list(_steps(run, settings, iteration, begun=iteration == loop.start))
    if iteration + 1 in loop.evaluations:
        steps.append("evaluate")
    return {"phase": phase_of(settings, iteration), "iteration": iteration, "steps": steps}


def _steps(run: RunDir, settings: Settings, iteration: int, *, begun: bool) -> Iterator[str]:
    """Yield the remaining steps of a phase without its evaluation. `begun`: whether parts of it may be done."""
    new, how = run.new_tasks(iteration), settings.curriculum
    if how.generate and not new.is_file():
        yield from ("survey", "generate") if phase_of(settings, iteration) == 1 else ("generate",)
    planned = begun and run.plan(Split.TRAIN, iteration).is_file()
    episodes = phase_episodes(run, settings, iteration)
    if not planned or plan_rollout(run, settings, Split.TRAIN, iteration, episodes).owed:
        yield "rollout"
    if how.score != "environment":
        yield "score"
    yield from ("prepare", "train")


def _require(run: RunDir, settings: Settings) -> None:
    """Check up front what would otherwise fail only after hours. Raises `SettingsError`, `UsageError`."""
    how, source = settings.curriculum, settings.tasks.train
    if settings.loop.mode != "sync":
        raise SettingsError("loop.mode=async: the phases of a curriculum take turns", hint="-s loop.mode=sync")
    environment = open_tasks(source).task(0).environment
    if how.generate:
        require_generator(settings)
        if not has_new_tasks(environment):
            raise SettingsError(
                f"{source}: its tasks are of {environment}; new ones can be made of tasks on the web only",
                hint="-s tasks.train=FILE with tasks of web or webarena, or -s curriculum.generate=false",
            )
        if how.score == "environment":
            raise SettingsError(
                "curriculum.score: no environment can tell whether a new task was done",
                hint="-s curriculum.score=orm, or judge; or -s curriculum.generate=false",
            )
    if how.score == "orm":
        require_orm(settings.orm)
        if settings.judge.base_url:
            raise SettingsError(
                "curriculum.score=orm, but judge.base_url names a judge, whose verdicts would count instead",
                hint="-s judge.base_url= for the reward model's verdicts, or -s curriculum.score=judge",
            )
    elif how.score == "judge":
        require_judge(settings.judge)
    iteration = version(run)
    phase = phase_of(settings, iteration)
    begun = run.plan(Split.TRAIN, iteration).is_file() and not run.new_tasks(iteration).is_file()
    if how.generate and phase and begun:  # it would mix the original tasks with new ones
        raise UsageError(
            f"{run.root}: iteration {iteration} was rolled out on {source} already, and as phase {phase} it would be "
            "on new tasks",
            hint="start another run in another folder, or go on with -s curriculum.generate=false",
        )
