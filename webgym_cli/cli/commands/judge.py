"""`webgym judge`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from webgym_cli.cli.ids import IdsArg, read_ids
from webgym_cli.cli.options import RunArg, StageOptions
from webgym_cli.errors import UsageError
from webgym_cli.records.groups import Split

if TYPE_CHECKING:
    from webgym_cli.rewards.selection import ScoringQuery, ScoringSelection

SplitOpt = Annotated[Split | None, typer.Option("--split", help="Only this split.")]
IterationOpt = Annotated[str, typer.Option("--iteration", metavar="N|all", help="Only this iteration.")]
UnjudgedOpt = Annotated[bool, typer.Option("--unjudged", help="Only trajectories without a verdict (default).")]
FailedOpt = Annotated[bool, typer.Option("--failed", help="Only trajectories at which the judge failed.")]
AllOpt = Annotated[bool, typer.Option("--all", help="Also those with a verdict by other settings (default with ids).")]


def judge(
    run: RunArg,
    options: StageOptions,
    ids: IdsArg = None,
    split: SplitOpt = None,
    iteration: IterationOpt = "all",
    unjudged: UnjudgedOpt = False,
    failed: FailedOpt = False,
    all_: AllOpt = False,
) -> None:
    """Score stored trajectories with a judge.

    The judge is a model behind any OpenAI-compatible server; neither browser nor policy is needed. Each verdict is
    stored beside its trajectory with its reasons; older verdicts are kept and the newest counts. Trajectories that were
    judged with the same settings are skipped, so the same command continues where it stopped. An unreadable verdict is
    recorded as judge_failed: neither a success nor a failure.

    Examples:
      webgym judge runs/a -s judge.base_url=http://localhost:8000/v1 -s judge.model=my-judge
      webgym judge runs/a --all --split test -s judge.votes=3
      webgym inspect-buffer runs/a --failure judge_failed -q | webgym judge runs/a -

    Exit codes: 3, 75.

    See also: webgym rollout, webgym inspect-buffer, webgym fixture judge.
    """
    from webgym_cli.cli.stage import resolve, stage
    from webgym_cli.config.judge import SCRIPTED
    from webgym_cli.loop.judging import judge as judge_run
    from webgym_cli.rewards.judge.client import require_judge
    from webgym_cli.rewards.judge.scorer import JudgeScorer
    from webgym_cli.rewards.selection import ScoringSelection, plan_scoring

    ids = read_ids(ids)
    selections = {
        ScoringSelection.UNJUDGED: ("--unjudged", unjudged),
        ScoringSelection.FAILED: ("--failed", failed),
        ScoringSelection.ALL: ("--all", all_),
    }
    query = build_query(ids, split, iteration, selections)
    directory, settings = resolve(run, options, required=True)
    output = options.open_output()
    if settings.judge.base_url != SCRIPTED:
        require_judge(settings.judge)
    plan = plan_scoring(directory, JudgeScorer(settings.judge), query)
    if options.dry_run:
        output.show(plan.to_json())
        return
    own_options: dict[str, Any] = {"ids": ids, "split": split, "iteration": iteration}
    own_options |= {"unjudged": unjudged, "failed": failed, "all_": all_}
    with stage("judge", directory, settings, output, own_options) as at:
        summary = at.execute(lambda context: judge_run(context, plan))
    output.next_step(f"webgym judge {run} --failed" if summary["judge_failed"] else f"webgym inspect-buffer {run}")


def build_query(
    ids: Sequence[str] | None,
    split: Split | None,
    iteration: str,
    selections: Mapping[ScoringSelection, tuple[str, bool]],
) -> ScoringQuery:
    """Return what the options select; `selections`: the option of each, and whether it is given.

    Raises `UsageError` where they make no sense.
    """
    from webgym_cli.rewards.selection import ScoringQuery

    if iteration != "all" and not iteration.isdecimal():
        raise UsageError(f"--iteration takes a number or all, got {iteration!r}")
    given = [selection for selection, (_, is_given) in selections.items() if is_given]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(selections[selection][0] for selection in given)} exclude each other")
    return ScoringQuery(
        split=split,
        iteration=None if iteration == "all" else int(iteration),
        selection=given[0] if given else None,
        ids=None if ids is None else tuple(ids),
    )
