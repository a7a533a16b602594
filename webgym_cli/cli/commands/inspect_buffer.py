"""`webgym inspect-buffer`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from webgym_cli.cli import completion as complete
from webgym_cli.cli.options import DataOptions, QuietOpt, refuse_both, run_argument
from webgym_cli.cli.output import Output
from webgym_cli.cli.run_index import open_run_index
from webgym_cli.errors import StoreError, UsageError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.groups import DifficultyBand, Split

if TYPE_CHECKING:
    from webgym_cli.config.model import Settings
    from webgym_cli.store.index.query import Index
    from webgym_cli.store.index.selection import TrajectoryQuery
    from webgym_cli.store.run import RunDir

RunsArg = Annotated[list[Path], run_argument("RUN...", "The runs' folders; several with --sql only.")]
SplitOpt = Annotated[Split | None, typer.Option("--split", help="Only this split.")]
IterationOpt = Annotated[int | None, typer.Option("--iteration", min=0, max=10**9, help="Only this iteration.")]
TaskOpt = Annotated[str | None, typer.Option("--task", help="Only the task with this id.")]
SiteOpt = Annotated[str | None, typer.Option("--site", help="Only this site (example.com).")]
BandOpt = Annotated[DifficultyBand | None, typer.Option("--band", help="Only this difficulty band.")]
WhereOpt = Annotated[
    str | None, typer.Option("--where", metavar="SQL", help="Only trajectories for which this SQL condition holds.")
]


@dataclass(frozen=True, slots=True)
class SelectionOptions:
    """The options that choose trajectories."""

    split: SplitOpt = None
    iteration: IterationOpt = None
    task: TaskOpt = None
    site: SiteOpt = None
    band: BandOpt = None
    where: WhereOpt = None

    def to_query(self, **more: Any) -> TrajectoryQuery:
        """Return them as a query, without `where`, which an index has to check. `more`: other fields of the query."""
        from webgym_cli.store.index.selection import TrajectoryQuery

        return TrajectoryQuery(self.split, self.iteration, self.task, site=self.site, band=self.band, **more)


RewardOpt = Annotated[float | None, typer.Option("--reward", help="Only trajectories with this reward (0 to 1).")]
FailureOpt = Annotated[
    str | None,
    typer.Option(
        "--failure",
        help="Only this kind of failure; any: all failures.",
        autocompletion=complete.choices("any", *FailureKind),
    ),
]
SqlOpt = Annotated[
    str | None, typer.Option("--sql", metavar="SELECT", help="Show the rows of this query on the index instead.")
]
TopOpt = Annotated[
    int | None,
    typer.Option("--top", min=0, max=10**9, help="Maximum rows per table; 0: all (default: 20, with --json all)."),
]
ReindexOpt = Annotated[bool, typer.Option("--reindex", help="Rebuild the index first.")]
VerifyOpt = Annotated[
    bool, typer.Option("--verify", help="Verify trajectories, index and screenshots against each other instead.")
]
# Default number of rows of a table on a terminal.
TOP = 20


def inspect_buffer(
    runs: RunsArg,
    options: DataOptions,
    selection: SelectionOptions,
    reward: RewardOpt = None,
    failure: FailureOpt = None,
    sql: SqlOpt = None,
    top: TopOpt = None,
    reindex: ReindexOpt = False,
    verify: VerifyOpt = False,
    quiet: QuietOpt = False,
) -> None:
    """Show the contents of the replay buffer.

    Also shows what prepare would select, and why it drops the rest. --where and --sql are DuckDB's SQL on the tables
    trajectories, steps, judgements, stored and damage.

    Examples:
      webgym inspect-buffer runs/a --reward 1 -q | webgym export-sharegpt runs/a - > sft.json
      webgym inspect-buffer runs/a --where "steps > 8 and site = 'example.com' and agreement < 1"
      webgym inspect-buffer runs/* --sql "select run, iteration, avg(success::int) from trajectories group by all"

    Exit codes: 3.

    See also: webgym show, webgym compare, webgym prepare, webgym gc.
    """
    from webgym_cli.cli.stage import resolve

    directory, settings = resolve(runs[0], options, required=True, executes=False)
    query, where = selection.to_query(reward=reward, failure=failure), selection.where
    more = _open_more(runs[1:], only=sql is not None and not reindex)
    for other, given in {
        "a choice of trajectories": (selection, reward, failure) != (SelectionOptions(), None, None),
        "--top": top is not None,
        "--quiet": quiet,
    }.items():
        refuse_both({"--verify": verify, "--sql": sql is not None, other: given})
    output = Output(as_json=options.json, quiet=quiet)
    if verify:
        _verify(directory, output, reindex=reindex)
        return
    with open_run_index(directory, output, *more, rebuilt=reindex) as index:
        if where is not None:
            query = replace(query, expression=index.check_where(where))
        if sql is not None:
            _run_sql(directory, index, sql, output)
        elif quiet:
            _print_ids(directory, index, query, output)
        else:
            _show_summary(directory, settings, index, query, top, output)


def _open_more(runs: Sequence[Path], *, only: bool) -> list[RunDir]:
    """Return the other runs. Raises `UsageError` unless they are `only` queried."""
    from webgym_cli.store.find_run import open_run

    more = [open_run(path)[0] for path in runs]
    if more and not only:
        raise UsageError("several runs are only queried together", hint='webgym inspect-buffer RUN RUN --sql "..."')
    return more


def _run_sql(run: RunDir, index: Index, sql: str, output: Output) -> None:
    """Show a query's rows: as JSON Lines as they come, else as a table."""
    from webgym_cli.cli.commands.inspect_tables import cell
    from webgym_cli.inspect.overview import run_user_sql, to_plain_value

    rows = run_user_sql(run, index, sql)
    if output.as_json:
        for row in rows:
            output.data({name: to_plain_value(value) for name, value in row.items()})
        return
    first = next(rows, None)
    if first is None:
        output.note("no rows")
        return
    digits = 6
    if not sys.stdout.isatty():  # for a program, to which 1.79613e+09 is no time
        digits = 15
    all_rows = (map(to_plain_value, row.values()) for row in chain([first], rows))
    output.table("", tuple(first), ([cell(value, digits) for value in row] for row in all_rows))


def _print_ids(run: RunDir, index: Index, query: TrajectoryQuery, output: Output) -> None:
    from webgym_cli.inspect.overview import list_ids, user_sql_errors

    with user_sql_errors(run, "--where"):
        for name in list_ids(index, query):
            output.text(name)


def _show_summary(
    run: RunDir, settings: Settings, index: Index, query: TrajectoryQuery, top: int | None, output: Output
) -> None:
    from webgym_cli.cli.commands.inspect_tables import show_overview
    from webgym_cli.inspect.overview import build_overview, user_sql_errors
    from webgym_cli.prepare.sft.plan import preview_dataset
    from webgym_cli.store.index.selection import TrajectoryQuery

    limit = top or None  # 0: all
    if top is None and not output.as_json:
        limit = TOP
    with user_sql_errors(run, "--where"):
        overview = build_overview(run, index, query, limit)
    overview["prepare"] = preview_dataset(run, settings, index) or None
    if output.as_json:
        output.data(overview)
    else:
        show_overview(output, overview)
    if query != TrajectoryQuery() and not overview["trajectories"]:
        output.note("no trajectory matches")
        output.next_step(f"webgym inspect-buffer {run.root}")


def _verify(run: RunDir, output: Output, *, reindex: bool) -> None:
    """Show the findings of the verification: all of them with `--json`. Raises `StoreError` if there are any."""
    from webgym_cli.cli.commands.inspect_tables import show_findings
    from webgym_cli.inspect.verify import verify

    if reindex:  # not without: an update of the index would hide lines that are missing
        with open_run_index(run, output, rebuilt=True):
            pass
    with output.progress() as board:
        report = verify(run, board)
    if output.as_json:
        output.data({"event": "verify", **report})
    else:
        show_findings(output, report)
    if wrong := report["findings_by_kind"]:
        kinds = ", ".join(f"{count} x {kind}" for kind, count in wrong.items())
        raise StoreError(f"{run.root}: not all is as it was written: {kinds}", hint=report["findings"][0]["mend"])
    output.note(f"{run.root}: all is as it was written")
