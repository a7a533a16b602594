"""Plan of a curriculum: a loop whose iterations after the demonstrations are phases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.curriculum.seeds import has_new_tasks
from webgym_cli.errors import SettingsError, UsageError
from webgym_cli.loop.generation import require_generator, resolve_settings
from webgym_cli.loop.loop_plan import LoopPlan, plan_loop
from webgym_cli.loop.phases import last_iteration, phase_episodes, phase_of, survey_episodes
from webgym_cli.loop.scoring import resolve_orm_model
from webgym_cli.records.task import Split
from webgym_cli.rewards.judge.client import require_judge
from webgym_cli.rewards.orm.scorer import require_orm
from webgym_cli.rollout.plan import plan_rollout
from webgym_cli.store.checkpoints import version
from webgym_cli.store.run import RunDir
from webgym_cli.tasks.source import open_tasks


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
    demonstrated = settings.loop.demonstration_iterations
    return CurriculumPlan(
        loop=loop,
        baseline="demonstrations" if demonstrated else settings.policy_config.base_model,
        demonstrations=max(0, demonstrated - loop.start),
        phases=tuple(_phase(run, settings, loop, number) for number in iterations if phase_of(settings, number)),
        how={name: getattr(settings.curriculum, name) for name in ("tasks_per_phase", "generate", "score")}
        | ({"survey_episodes": survey_episodes(settings)} if settings.curriculum.generate else {}),
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
    """Return the plan of one phase."""
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
