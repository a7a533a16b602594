"""`webgym judge`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from webgym_cli.cli.ids import IdsArg, read_ids
from webgym_cli.cli.options import ConfigOpt, DryRunOpt, JsonOpt, RunArg, SetOpt
from webgym_cli.cli.output import Output
from webgym_cli.errors import UsageError
from webgym_cli.records.groups import Split

if TYPE_CHECKING:
    from webgym_cli.rewards.selection import ScoringQuery

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
    """Score stored trajectories by a judge.

    A judge is any OpenAI-compatible server; no browser and no policy is needed. Every verdict is stored beside its
    trajectory with its reasons; older ones are kept and the newest counts. What was judged with the same settings is
    skipped, so the same command goes on where it stopped. A judge that can't be read is judge_failed: neither a
    success nor a failure.

    Examples:
      webgym judge runs/a -s judge.base_url=http://localhost:8000/v1 -s judge.model=my-judge
      webgym judge runs/a --all --split test -s judge.votes=3
      webgym inspect-buffer runs/a --failure judge_failed -q | webgym judge runs/a -

    Exit codes: 3, 75.

    See also: webgym rollout, webgym inspect-buffer, webgym fixture judge.
    """
    from webgym_cli.cli.stage import resolve, stage
    from webgym_cli.config.judge import SCRIPTED
    from webgym_cli.rewards.judge.client import require_judge
    from webgym_cli.rewards.judge.scorer import JudgeScorer
    from webgym_cli.rewards.selection import plan_scoring
    from webgym_cli.store.run import open_run

    open_run(run)
    options: dict[str, Any] = {"ids": read_ids(ids), "split": split and split.value, "iteration": iteration}
    options |= {"unjudged": unjudged, "failed": failed, "all_": all_}
    query = query_of(options)
    directory, settings = resolve(run, config, set_)
    output = Output.for_events(json)
    if settings.judge.base_url != SCRIPTED:
        require_judge(settings.judge)
    plan = plan_scoring(directory, JudgeScorer(settings.judge), query)
    if dry_run:
        output.show(plan.to_json())
        return
    with stage("judge", directory, settings, output, options) as at:
        summary = at.execute(lambda pipeline: pipeline.judge(query))
    output.next_step(f"webgym judge {run} --failed" if summary["judge_failed"] else f"webgym inspect-buffer {run}")


def query_of(options: dict[str, Any]) -> ScoringQuery:
    """Return what the options ask for. Raises `UsageError` where they make no sense."""
    from webgym_cli.rewards.selection import ScoringQuery, ScoringSelection

    iteration = options["iteration"]
    if iteration != "all" and not iteration.isdecimal():
        raise UsageError(f"--iteration takes a number or all, got {iteration!r}")
    flags = {"unjudged": ScoringSelection.UNJUDGED, "failed": ScoringSelection.FAILED, "all_": ScoringSelection.ALL}
    given = [name for name in flags if options[name]]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(f'--{flags[name]}' for name in given)} exclude each other")
    return ScoringQuery(
        split=Split(options["split"]) if options["split"] else None,
        iteration=None if iteration == "all" else int(iteration),
        selection=flags[given[0]] if given else None,
        ids=None if options["ids"] is None else tuple(options["ids"]),
    )
