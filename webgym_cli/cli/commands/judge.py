"""`webgym judge`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from webgym_cli.cli.commands.inspect_buffer import SplitOpt
from webgym_cli.cli.options import (
    FieldOpt,
    IdsArg,
    PaidOptions,
    RunArg,
    parse_fields,
    read_ids,
    refuse_both,
    refuse_without_effect,
)
from webgym_cli.cli.output import Output
from webgym_cli.errors import UsageError
from webgym_cli.records.groups import Split
from webgym_cli.util.optional import map_known

if TYPE_CHECKING:
    from webgym_cli.rewards.selection import ScoringQuery

IterationOpt = Annotated[str, typer.Option("--iteration", metavar="N|all", help="Only this iteration.")]
UnjudgedOpt = Annotated[bool, typer.Option("--unjudged", help="Only trajectories without a verdict (default).")]
FailedOpt = Annotated[bool, typer.Option("--failed", help="Only trajectories at which the judge failed.")]
AllOpt = Annotated[bool, typer.Option("--all", help="Also those with a verdict by other settings (default with ids).")]
AgainstOpt = Annotated[
    Path | None,
    typer.Option(
        "--against", metavar="LABELS", help="Judge nothing: compare the stored verdicts with people's labels."
    ),
]
PrecisionOpt = Annotated[
    float | None,
    typer.Option("--precision", min=0, max=1, help="With --against: show the threshold that this precision needs."),
]


def judge(
    run: RunArg,
    options: PaidOptions,
    ids: IdsArg = None,
    split: SplitOpt = None,
    iteration: IterationOpt = "all",
    unjudged: UnjudgedOpt = False,
    failed: FailedOpt = False,
    all_: AllOpt = False,
    against: AgainstOpt = None,
    precision: PrecisionOpt = None,
    field: FieldOpt = None,
) -> None:
    """Score stored trajectories with a judge.

    Needs neither browser nor policy. Trajectories that were judged with the same settings are skipped. --against LABELS
    compares what is stored with people's labels instead.

    Examples:
      webgym judge runs/a -s judge.base_url=http://localhost:8000/v1 -s judge.model=my-judge
      webgym judge runs/a --all --split test -s judge.votes=3
      webgym judge runs/a --against labels.jsonl --precision 0.9
      webgym judge runs/a --against sheet.csv --field trajectory=episode --field label=verdict --field who=annotator
      webgym inspect-buffer runs/a --failure judge_failed -q | webgym judge runs/a -

    Exit codes: 3, 75, 86.

    See also: webgym label, webgym rollout, webgym inspect-buffer.
    """
    from webgym_cli.cli.stage import resolve, stage
    from webgym_cli.loop.scoring import score
    from webgym_cli.rewards.judge.client import require_judge
    from webgym_cli.rewards.judge.scorer import JudgeScorer
    from webgym_cli.rewards.selection import plan_scoring

    ids = read_ids(ids)
    query = build_query(ids, split, iteration, {"--unjudged": unjudged, "--failed": failed, "--all": all_})
    if against is not None:
        _show_agreement(run, against, parse_fields(field), query, precision, as_json=options.json)
        return
    refuse_without_effect("without --against", {"--precision": precision is not None, "--field": bool(field)})
    directory, settings = resolve(run, options, required=True)
    output = options.open_output()
    require_judge(settings.judge)
    plan = plan_scoring(directory, JudgeScorer(settings.judge, directory), query)
    if options.dry_run:
        output.show(plan.to_json())
        return
    own_options: dict[str, Any] = {"ids": ids, "split": split, "iteration": iteration}
    own_options |= {"unjudged": unjudged, "failed": failed, "all_": all_}
    with stage("judge", directory, settings, output, own_options) as at:
        summary = at.execute(lambda context: score(context, plan))
    output.next_step(f"webgym judge {run} --failed" if summary["judge_failed"] else f"webgym inspect-buffer {run}")


def build_query(
    ids: Sequence[str] | None, split: Split | None, iteration: str, selections: Mapping[str, bool]
) -> ScoringQuery:
    """Return what the options select; `selections`: whether each of the options that exclude each other is given.

    Raises `UsageError` where they make no sense.
    """
    from webgym_cli.rewards.selection import ScoringQuery, ScoringSelection

    if iteration != "all" and not iteration.isdecimal():
        raise UsageError(f"--iteration takes a number or all, got {iteration!r}")
    refuse_both(selections)
    given = [option for option, is_given in selections.items() if is_given]
    known = {"--failed": ScoringSelection.FAILED, "--all": ScoringSelection.ALL}
    return ScoringQuery(
        split=split,
        iteration=None if iteration == "all" else int(iteration),
        selection=known.get(given[0], ScoringSelection.UNJUDGED) if given else None,
        ids=map_known(tuple, ids),
    )


def _show_agreement(
    run: Path, labels: Path, names: dict[str, str], query: ScoringQuery, precision: float | None, *, as_json: bool
) -> None:
    from webgym_cli.evaluate.agreement import TABLES, measure_agreement, read_labels
    from webgym_cli.rewards.selection import iter_selected
    from webgym_cli.store.find_run import open_run

    output, directory = Output(as_json=as_json), open_run(run)[0]
    agreement = measure_agreement(read_labels(labels, names), iter_selected(directory, query, []), precision)
    if as_json:
        output.data(agreement)
        return
    for name, columns in TABLES.items():
        measured = agreement[name]
        if rows := [measured] if isinstance(measured, dict) else measured:
            output.table(name, columns, ([row[column] for column in columns] for row in rows))
    counts = {name: value for name, value in agreement.items() if isinstance(value, int)}
    output.note(", ".join(f"{value} {name}" for name, value in counts.items()))
    if precision is not None and not agreement["thresholds"]:
        output.note("--precision: these episodes have no shares of votes (judge.votes=3) and no scores (webgym score)")
