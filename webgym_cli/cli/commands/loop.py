"""`webgym loop`."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from webgym_cli.cli.options import MinSuccessOpt, PaidOptions, RunArg
from webgym_cli.cli.output import Output
from webgym_cli.config.limits import MAX_ITERATIONS
from webgym_cli.util.optional import when

if TYPE_CHECKING:
    from webgym_cli.config.model import Settings
    from webgym_cli.loop.context import StageContext
    from webgym_cli.loop.loop import Loop
    from webgym_cli.loop.loop_plan import Deadline, LoopPlan
    from webgym_cli.records.events import Event
    from webgym_cli.store.run import RunDir

PhaseOpt = Annotated[
    Literal["rollout", "update", "both"],
    typer.Option("--phase", help="rollout: evaluate and roll out; update: prepare and train; or both."),
]
IterationsOpt = Annotated[
    int | None,
    typer.Option(
        "--iterations", min=1, max=MAX_ITERATIONS, help="Total number of trainings of the run (loop.iterations)."
    ),
]
EvalEveryOpt = Annotated[
    int | None,
    typer.Option(
        "--eval-every", min=0, metavar="N", help="Evaluate every N-th policy and the last; 0: none (loop.eval_every)."
    ),
]
UntilOpt = Annotated[
    float | None,
    typer.Option("--until", min=0, max=1, metavar="RATE", help="Stop once an evaluation reaches this success rate."),
]
KeepGoingOpt = Annotated[
    bool, typer.Option("--keep-going", help="Continue after a failed stage: the next round collects more and retries.")
]
StopBeforeOpt = Annotated[
    str | None,
    typer.Option(
        "--stop-before", metavar="TIME", help="Exit with 85 this long before the SLURM job ends, such as 3m, 90s or 1h."
    ),
]


def loop(
    run: RunArg,
    options: PaidOptions,
    phase: PhaseOpt = "both",
    iterations: IterationsOpt = None,
    eval_every: EvalEveryOpt = None,
    until: UntilOpt = None,
    min_success: MinSuccessOpt = None,
    keep_going: KeepGoingOpt = False,
    stop_before: StopBeforeOpt = None,
) -> None:
    """Repeat: evaluate, roll out, prepare, train, swap weights.

    Run again, the loop continues where it stopped; evaluations and stages are recorded in RUN/metrics.jsonl. A stage
    that fails ends the loop with that stage's exit code, unless --keep-going is given.

    Examples:
      webgym loop runs/a -c demo --iterations 3
      webgym loop runs/a --iterations 10 --until 0.9 --min-success 0.8
      webgym loop runs/a -s loop.mode=async
      webgym loop runs/a --stop-before 3m
      webgym loop runs/a --dry-run

    Exit codes: 3, 4, 5, 75, 85, 86.

    See also: webgym status, webgym resume, webgym report.
    """
    from webgym_cli.cli.stage import check_command, resolve
    from webgym_cli.loop.loop import Loop
    from webgym_cli.loop.loop_plan import Phase, find_deadline, plan_loop
    from webgym_cli.tracking.execute import plan_tracking

    directory, settings = resolve(run, options)
    output = options.open_output()
    own_options: dict[str, Any] = {"iterations": iterations, "eval_every": eval_every}
    own_options |= {"until": until, "min_success": min_success, "keep_going": keep_going}
    plan = plan_loop(directory, settings, phase=Phase(phase), **own_options)
    deadline = find_deadline(directory, stop_before, os.environ)
    if options.dry_run:
        check_command("loop", directory, settings, {"phase": phase}, output)
        output.show({**plan.to_json(), "tracking": plan_tracking(directory, settings).to_json()})
        return
    kept = {"phase": phase, **own_options, "stop_before": stop_before}
    work("loop", directory, settings, output, kept, lambda context: Loop(plan, context), deadline)
    if plan.iterations < plan.start:
        output.note(f"note: the run has {plan.start} trainings already; --iterations is their total number")
    output.next_step(_find_next_step(run, plan))


def _find_next_step(run: Path, plan: LoopPlan) -> str:
    """Return the commands that go on after a loop: the other half of its iteration, or more iterations."""
    other = {"rollout": "update", "update": "rollout"}.get(plan.phase)
    if other is not None:
        return f"webgym loop {run} --phase {other}"
    further = max(plan.iterations, plan.start) + 1
    return f"webgym inspect-buffer {run}   or   webgym loop {run} --iterations {further}"


def work(
    command: str,
    run: RunDir,
    settings: Settings,
    output: Output,
    options: dict[str, Any],
    make_loop: Callable[[StageContext], Loop],
    deadline: Deadline | None,
) -> None:
    """Have the loop that `make_loop` returns for the run's context work until `deadline`, as a command with `options`.

    Shows how the policies did, what was gained over the SFT baseline, if there is one, what failed meanwhile, and signs
    of a collapse.
    """
    from webgym_cli.cli.stage import stage
    from webgym_cli.report.training_metrics import read_warnings

    enforced = deadline.enforced() if deadline is not None else nullcontext()
    with enforced, stage(command, run, settings, output, options) as at:

        async def execute(context: StageContext) -> tuple[list[dict[str, Any]], list[Event]]:
            working = make_loop(context)
            working.deadline = deadline
            return await working.execute(), working.failures

        evaluations, failures = at.execute(execute)
    if evaluations:
        output.summary_table("held-out episodes by policy", *progress_table(evaluations))
    lost = (failure["message"] for failure in failures)
    for line in [*format_improvements(evaluations, settings.loop.demonstration_iterations), *lost, *read_warnings(run)]:
        output.note(line)


def format_improvements(evaluations: list[dict[str, Any]], baseline: int) -> list[str]:
    """Return the improvement of the last policy over the first, and over the one trained on demonstrations only."""
    starts = {"the first policy": 0, **when(baseline, {f"the SFT baseline (version {baseline})": baseline})}
    by_version = {event["iteration"]: event for event in evaluations if event["episodes"]}
    last = max(by_version, default=0)
    return [
        f"version {last} against {name}: {_change(by_version[start], by_version[last])}"
        for name, start in starts.items()
        if start in by_version and start < last
    ]


def progress_table(evaluations: list[dict[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return columns and rows: each evaluation, and its difference from the one before with its 95 % interval.

    Empty where no reward is known.
    """
    from webgym_cli.records.series import name_version

    rows: list[tuple[str, ...]] = []
    for before, event in zip([{"episodes": 0}, *evaluations], evaluations, strict=False):
        rate = interval = change = ""
        if event["episodes"]:
            low, high = event["interval"]
            rate, interval = f"{event['success_rate']:.3f}", f"{low:.3f}-{high:.3f}"
            if before["episodes"]:
                change = _change(before, event)
        name = name_version(event.get("policy", ""), event["iteration"])
        rows.append((name, str(event["episodes"]), rate, interval, change))
    return ("policy version", "episodes", "success", "95 %", "change from the one before"), rows


def _change(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Return the difference of two success rates with its 95 % interval."""
    from webgym_cli.records.statistics import difference

    earlier, later = ((event["successes"], event["episodes"]) for event in (before, after))
    delta, low, high = difference(earlier, later)
    return f"{delta:+.3f} ({low:+.3f} to {high:+.3f})"
