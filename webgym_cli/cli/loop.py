"""`webgym loop`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from webgym_cli.cli.options import ConfigOpt, DryRunOpt, JsonOpt, RunArg, SetOpt
from webgym_cli.cli.output import Output

IterationsOpt = Annotated[
    int | None, typer.Option("--iterations", min=1, help="Trainings that the run shall have in all (loop.iterations).")
]


def loop(
    run: RunArg,
    iterations: IterationsOpt = None,
    config: ConfigOpt = None,
    set_: SetOpt = None,
    json: JsonOpt = False,
    dry_run: DryRunOpt = False,
) -> None:
    """Evaluate, roll out, prepare, train and swap the weights, iteration after iteration.

    Run again, it goes on where it stopped; evaluations and stages stand in RUN/metrics.jsonl.

    Example: webgym loop runs/a -c demo --iterations 3
    """
    from webgym_cli.cli.stage import resolve, stage
    from webgym_cli.jobs.signals import run_async
    from webgym_cli.loop import Pipeline, require_policy
    from webgym_cli.store.checkpoints import version

    directory, settings = resolve(run, config, set_)
    output = Output.for_events(json)
    wanted = iterations or settings.loop.iterations
    require_policy(settings.rollout.policy)
    if dry_run:
        done = version(directory)
        output.show(
            {"event": "plan", "stage": "loop", "trainings_done": done, "trainings_to_do": max(0, wanted - done)}
        )
        return
    with stage("loop", directory, settings, output, {"iterations": wanted}) as at:

        async def work() -> list[dict[str, Any]]:
            async with Pipeline(at.run, at.settings, at.logs, at.sink) as pipeline:
                return await pipeline.loop(wanted)

        evaluations = run_async(work())
    output.summary_table("held-out episodes by policy", *progress_table(evaluations))
    for line in gains(evaluations, settings.loop.demonstration_iterations):
        output.note(line)
    output.next_step(f"webgym inspect-buffer {run}   or   webgym loop {run} --iterations {wanted + 1}")


def gains(evaluations: list[dict[str, Any]], baseline: int) -> list[str]:
    """Return what the last policy gained over the first, and over the one that learned from demonstrations alone."""
    starts = {"the first policy": 0, **({f"the SFT baseline (version {baseline})": baseline} if baseline else {})}
    by_version = {event["iteration"]: event for event in evaluations}
    last = max(by_version, default=0)
    return [
        f"version {last} against {name}: {_change(by_version[start], by_version[last])}"
        for name, start in starts.items()
        if start in by_version and start < last
    ]


def progress_table(evaluations: list[dict[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return columns and rows: each evaluation, and its difference from the one before with its 95 % interval."""
    rows: list[tuple[str, ...]] = []
    for position, event in enumerate(evaluations):
        change = _change(evaluations[position - 1], event) if position else ""
        low, high = event["interval"]
        rate = f"{event['success_rate']:.3f}"
        rows.append((str(event["iteration"]), str(event["episodes"]), rate, f"{low:.3f}-{high:.3f}", change))
    return ("policy version", "episodes", "success", "95 %", "change from the one before"), rows


def _change(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Return the difference of two success rates with its 95 % interval."""
    from webgym_cli.records.rates import difference

    earlier, later = ((event["successes"], event["episodes"]) for event in (before, after))
    delta, low, high = difference(earlier, later)
    return f"{delta:+.3f} ({low:+.3f} to {high:+.3f})"
