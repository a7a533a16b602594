"""`webgym curriculum`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from webgym_cli.cli.commands.loop import KeepGoingOpt, MinSuccessOpt, UntilOpt
from webgym_cli.cli.options import ConfigOpt, DryRunOpt, JsonOpt, RunArg, SetOpt
from webgym_cli.cli.output import Output

if TYPE_CHECKING:
    from webgym_cli.loop.pipeline import Pipeline

PhasesOpt = Annotated[
    int | None, typer.Option("--phases", min=1, help="Phases that the run shall have in all (curriculum.phases).")
]
TasksOpt = Annotated[
    int | None,
    typer.Option("--tasks-per-phase", min=1, metavar="N", help="Tasks of a phase (curriculum.tasks_per_phase)."),
]


def curriculum(
    run: RunArg,
    phases: PhasesOpt = None,
    tasks_per_phase: TasksOpt = None,
    until: UntilOpt = None,
    min_success: MinSuccessOpt = None,
    keep_going: KeepGoingOpt = False,
    config: ConfigOpt = None,
    set_: SetOpt = None,
    json: JsonOpt = False,
    dry_run: DryRunOpt = False,
) -> None:
    """Train in phases, each on new tasks made of failed ones.

    Phase 0 is the policy to begin with: the base model, or what loop.demonstration_iterations make of it. A phase makes
    new tasks of failed ones (webgym tasks generate), rolls them out, has them scored (webgym score, or webgym judge),
    prepares and trains, and the next policy is evaluated. The seeds of phase 1 are what phase 0's policy fails at of
    tasks.train: that survey is a run of its own in RUN/survey.

    A phase is an iteration of the run, with its tasks in RUN/tasks/new.iteration_<n>.jsonl. Run again, or by webgym
    resume, it goes on where it stopped: nothing is asked, rolled out or scored twice.

    Examples:
      webgym curriculum runs/a -c webrl --phases 8 --tasks-per-phase 500
      webgym curriculum runs/a --dry-run
      webgym curriculum runs/b -c webrl -s rl.replay.ratio=0 -s rl.webrl.beta=0 -s curriculum.generate=false

    Exit codes: 3, 4, 5, 75.

    See also: webgym tasks generate, webgym score, webgym loop, webgym status, webgym resume.
    """
    from webgym_cli.cli.commands.loop import work
    from webgym_cli.cli.stage import resolve
    from webgym_cli.cli.worker_node import join_as_worker
    from webgym_cli.loop.curriculum import phase_settings, plan_curriculum
    from webgym_cli.loop.loop import Loop
    from webgym_cli.loop.phases import Phases
    from webgym_cli.tracking.plan import plan_tracking

    directory, settings = resolve(run, config, [*(set_ or ()), *_list_settings(phases, tasks_per_phase)])
    output = Output.for_events(json)
    options: dict[str, Any] = {"until": until, "min_success": min_success, "keep_going": keep_going}
    plan = plan_curriculum(directory, settings, **options)
    if dry_run:
        output.show({**plan.to_json(), "tracking": plan_tracking(directory, settings).to_json()})
        return
    if join_as_worker(directory, settings, output):
        return

    def make_loop(pipeline: Pipeline) -> Loop:
        return Loop(plan.loop, pipeline, Phases(pipeline))

    work("curriculum", directory, phase_settings(settings), output, options, make_loop)
    output.next_step(f"webgym report {run}   or   webgym curriculum {run} --phases {settings.curriculum.phases + 1}")


def _list_settings(phases: int | None, tasks: int | None) -> list[str]:
    """Return the settings that the options stand for: kept in the run, so that it goes on by them."""
    values = {"curriculum.phases": phases, "curriculum.tasks_per_phase": tasks}
    return [f"{name}={value}" for name, value in values.items() if value is not None]
