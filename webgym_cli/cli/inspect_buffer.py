"""`webgym inspect-buffer`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from webgym_cli.cli.options import ConfigOpt, JsonOpt, QuietOpt, RunArg, SetOpt
from webgym_cli.cli.output import Output
from webgym_cli.records.task import Split

SplitOpt = Annotated[Split | None, typer.Option("--split", help="Only this split.")]
IterationOpt = Annotated[int | None, typer.Option("--iteration", help="Only this iteration.")]
TaskOpt = Annotated[str | None, typer.Option("--task", help="Only the task of this id.")]
RewardOpt = Annotated[float | None, typer.Option("--reward", help="Only trajectories with this reward (0 to 1).")]
FailureOpt = Annotated[str | None, typer.Option("--failure", help="Only this kind of failure; any: all failures.")]


def inspect_buffer(
    run: RunArg,
    split: SplitOpt = None,
    iteration: IterationOpt = None,
    task: TaskOpt = None,
    reward: RewardOpt = None,
    failure: FailureOpt = None,
    config: ConfigOpt = None,
    set_: SetOpt = None,
    json: JsonOpt = False,
    quiet: QuietOpt = False,
) -> None:
    """Show what the replay buffer holds, and what prepare would take of it and why not the rest.

    Examples:
      webgym inspect-buffer runs/a --iteration 2
      webgym inspect-buffer runs/a --reward 1 -q | webgym export-sharegpt runs/a - > sft.json
    """
    from webgym_cli.cli.stage import resolve
    from webgym_cli.prepare.inspect import Query, overview, select
    from webgym_cli.store.run import open_run

    open_run(run)
    directory, settings = resolve(run, config, set_)
    query = Query(split=split, iteration=iteration, task=task, reward=reward, failure=failure)
    output = Output(as_json=json, quiet=quiet)
    if quiet:
        for trajectory in select(directory, query):
            output.text(trajectory.id)
        return
    found = overview(directory, settings, query)
    if json:
        output.data(found)
    else:
        _show(output, found)


def _show(output: Output, found: dict[str, Any]) -> None:
    columns = ("count", "scored", "success", "95 %", "steps", "failures")
    output.table(f"{found['run']}, policy version {found['policy_version']}", ("", *columns), [("all", *_row(found))])
    for name in ("iteration", "task", "site", "difficulty"):
        groups = found[f"by_{name}"]
        output.table(f"by {name}", (name, *columns), [(key, *_row(group)) for key, group in groups.items()])
    if found["age_hours"]:
        output.table("age", ("oldest", "newest"), [[f"{hours} h ago" for hours in found["age_hours"]]])
    if plan := found["prepare"]:
        rows: list[tuple[str, Any]] = [
            ("iterations read", ", ".join(map(str, plan["iterations_read"]))),
            ("eligible steps", plan["eligible_steps"]),
            *((f"samples from iteration {key}", count) for key, count in plan["samples_by_iteration"].items()),
            *((f"trajectories left out: {reason}", count) for reason, count in plan["dropped_trajectories"].items()),
            *((f"steps left out: {reason}", count) for reason, count in plan["dropped_steps"].items()),
        ]
        output.table("prepare would take", ("", "count"), rows)
    for line in found["damaged_lines"]:
        output.note(f"damaged: {line}")


def _row(group: dict[str, Any]) -> tuple[Any, ...]:
    rate, interval = group["success_rate"], group["interval"]
    failures = "  ".join(f"{kind} {count}" for kind, count in group["failures"].items())
    return (
        group["trajectories"],
        group["scored"],
        "" if rate is None else f"{rate:.3f}",
        "" if interval is None else f"{interval[0]:.3f}-{interval[1]:.3f}",
        group["mean_steps"],
        failures or "0",
    )
