"""`webgym judge`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from webgym_cli.cli.ids import IdsArg, read_ids
from webgym_cli.cli.options import ConfigOpt, DryRunOpt, JsonOpt, RunArg, SetOpt
from webgym_cli.cli.output import Output
from webgym_cli.errors import UsageError
from webgym_cli.records.task import Split

SplitOpt = Annotated[Split | None, typer.Option("--split", help="Only this split.")]
IterationOpt = Annotated[str, typer.Option("--iteration", metavar="N|all", help="Only this iteration.")]
UnjudgedOpt = Annotated[bool, typer.Option("--unjudged", help="What has no verdict yet (the default).")]
FailedOpt = Annotated[bool, typer.Option("--failed", help="Only where the judge failed.")]
AllOpt = Annotated[bool, typer.Option("--all", help="Also what has a verdict by other settings (default with ids).")]


def judge(
    run: RunArg,
    ids: IdsArg = None,
    split: SplitOpt = None,
    iteration: IterationOpt = "all",
    unjudged: UnjudgedOpt = False,
    failed: FailedOpt = False,
    all_: AllOpt = False,
    config: ConfigOpt = None,
    set_: SetOpt = None,
    json: JsonOpt = False,
    dry_run: DryRunOpt = False,
) -> None:
    """Score stored trajectories by a judge, any OpenAI-compatible server; no browser and no policy is needed.

    Every verdict is stored beside its trajectory with its reasons; older ones are kept and the newest counts. What was
    judged with the same settings is skipped, so the same command goes on where it stopped. A judge that can't be read
    is judge_failed: neither a success nor a failure.

    Examples:
      webgym judge runs/a -s judge.base_url=http://localhost:8000/v1 -s judge.model=my-judge
      webgym judge runs/a --all --split test -s judge.votes=3
      webgym inspect-buffer runs/a --failure judge_failed -q | webgym judge runs/a -
    """
    from webgym_cli.cli.stage import resolve, stage
    from webgym_cli.jobs.signals import run_async
    from webgym_cli.loop import Pipeline
    from webgym_cli.rewards.client import require_judge
    from webgym_cli.rewards.plan import JudgeQuery, plan_judging
    from webgym_cli.store.run import open_run

    open_run(run)
    named = read_ids(ids)
    options = {
        "ids": named,
        "split": split.value if split else None,
        "iteration": iteration,
        **{"unjudged": unjudged, "failed": failed, "all_": all_},
    }
    directory, settings = resolve(run, config, set_)
    output = Output.for_events(json)
    require_judge(settings.judge)
    query = JudgeQuery(split, _iteration(iteration), _selection(options), None if named is None else tuple(named))
    plan = plan_judging(directory, settings.judge, query)
    if dry_run:
        output.show(plan.to_json())
        return
    with stage("judge", directory, settings, output, options) as at:

        async def work() -> dict[str, object]:
            async with Pipeline(at.run, at.settings, at.logs, at.sink) as pipeline:
                return await pipeline.judge(query)

        summary = run_async(work())
    output.next_step(f"webgym judge {run} --failed" if summary["judge_failed"] else f"webgym inspect-buffer {run}")


def _iteration(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isdecimal():
        raise UsageError(f"--iteration takes a number or all, got {text!r}")
    return int(text)


def _selection(options: dict[str, Any]) -> Any:
    """Return the selection that the flags name, None without one. Raises `UsageError` for more than one."""
    from webgym_cli.rewards.plan import Selection

    flags = {"--unjudged": Selection.UNJUDGED, "--failed": Selection.FAILED, "--all": Selection.ALL}
    given = [flag for flag, selection in flags.items() if options["all_" if flag == "--all" else selection.value]]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other")
    return flags[given[0]] if given else None
