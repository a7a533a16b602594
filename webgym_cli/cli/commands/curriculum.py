"""`webgym curriculum`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from webgym_cli.cli.commands.loop import KeepGoingOpt, StopBeforeOpt, UntilOpt
from webgym_cli.cli.options import MinSuccessOpt, PaidOptions, RunArg

if TYPE_CHECKING:
    from webgym_cli.loop.context import StageContext

PhasesOpt = Annotated[
    int | None, typer.Option("--phases", min=1, help="Total number of phases of the run (curriculum.phases).")
]
TasksOpt = Annotated[
    int | None,
    typer.Option("--tasks-per-phase", min=1, metavar="N", help="Tasks per phase (curriculum.tasks_per_phase)."),
]


def curriculum(
    run: RunArg,
    options: PaidOptions,
    phases: PhasesOpt = None,
    tasks_per_phase: TasksOpt = None,
    until: UntilOpt = None,
    min_success: MinSuccessOpt = None,
    keep_going: KeepGoingOpt = False,
    stop_before: StopBeforeOpt = None,
) -> None:
    """Train in phases, each on new tasks derived from failed ones.

    Each phase generates tasks from failed ones, rolls them out, scores them, prepares, trains and evaluates. The first
    failed tasks are those of a survey by the initial policy, a run of its own in RUN/survey.

    Examples:
      webgym curriculum runs/a -c webrl --phases 8 --tasks-per-phase 500
      webgym curriculum runs/a --dry-run
      webgym curriculum runs/b -c webrl -s rl.replay.ratio=0 -s rl.webrl.beta=0 -s curriculum.generate=false

    Exit codes: 3, 4, 5, 75, 85, 86.

    See also: webgym tasks generate, webgym score, webgym loop, webgym status, webgym resume.
    """
    from webgym_cli.cli.commands.loop import work
    from webgym_cli.cli.stage import check_command, resolve
    from webgym_cli.loop.loop import Loop
    from webgym_cli.loop.loop_plan import find_deadline
    from webgym_cli.loop.phases import Phases, phase_settings, plan_curriculum
    from webgym_cli.tracking.execute import plan_tracking

    # Saved in the run, so that it is resumed with them.
    values = {"curriculum.phases": phases, "curriculum.tasks_per_phase": tasks_per_phase}
    directory, settings = resolve(run, options, values)
    output = options.open_output()
    own_options: dict[str, Any] = {"until": until, "min_success": min_success, "keep_going": keep_going}
    plan = plan_curriculum(directory, settings, **own_options)
    deadline = find_deadline(directory, stop_before, os.environ)
    if options.dry_run:
        check_command("curriculum", directory, settings, {}, output)
        output.show({**plan.to_json(), "tracking": plan_tracking(directory, settings).to_json()})
        return

    def make_loop(context: StageContext) -> Loop:
        return Loop(plan.loop, context, Phases(context))

    kept = {**own_options, "stop_before": stop_before}
    work("curriculum", directory, phase_settings(settings), output, kept, make_loop, deadline)
    output.next_step(f"webgym report {run}   or   webgym curriculum {run} --phases {settings.curriculum.phases + 1}")
