"""`webgym compare`."""

from __future__ import annotations

import json as json_
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from webgym_cli.cli.options import JsonOpt, run_argument
from webgym_cli.cli.output import Output
from webgym_cli.cli.run_index import open_run_index

if TYPE_CHECKING:
    from webgym_cli.report.compare import Comparison

FirstArg = Annotated[Path, run_argument("RUN_A", "The baseline run.")]
SecondArg = Annotated[Path, run_argument("RUN_B", "The run that is compared with it.")]
HtmlOpt = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Also write the comparison to FILE, as one HTML page.")
]


def compare(first: FirstArg, second: SecondArg, html: HtmlOpt = None, json: JsonOpt = False) -> None:
    """Compare two runs and test whether they differ significantly.

    Shows success by split and iteration, steps, failures, and the settings that differ. Test episodes of the same task
    and seed are paired and compared by McNemar's exact test; without pairs, the 95 % interval of the difference of two
    proportions is given. Rates of different tasks get no verdict.
    `webgym diff RUN A B --with RUN2` shows which tasks changed.

    Examples:
      webgym compare runs/a runs/b
      webgym compare runs/a runs/b --html ab.html
      webgym compare runs/a runs/b --json | jq '.rows[] | select(.significant)'

    Exit codes: 3.

    See also: webgym diff, webgym report.
    """
    from webgym_cli.report.compare import ComparedRun, compare_runs
    from webgym_cli.report.compare_views import build_sections
    from webgym_cli.report.page import render_comparison
    from webgym_cli.store.run import check_output, open_run, refuse_output_in_run
    from webgym_cli.util.files import write_atomic

    output = Output(as_json=json)
    if html is not None:
        refuse_output_in_run(html)
    runs = [open_run(path)[0] for path in (first, second)]
    with ExitStack() as stack:
        sides = [ComparedRun(run, stack.enter_context(open_run_index(run, output))) for run in runs]
        compared = compare_runs(*sides)
    if html is not None:
        page = render_comparison(compared, build_sections(compared))
        check_output(html, page)
        write_atomic(html, page)
        output.note(f"the page: {html}")
    if json:
        output.data(compared)
    else:
        _show(output, compared)


def _show(output: Output, compared: Comparison) -> None:
    from webgym_cli.report.compare_views import (
        FAILURES,
        ROWS,
        build_failure_rows,
        build_success_rows,
        warn_of_different_tasks,
    )

    def table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
        if rows:
            output.table(title, columns, rows)

    sides = [("A", compared["first"]), ("B", compared["second"])]
    runs = [(name, side["run"], str(side["policy_version"]), side["policy"]) for name, side in sides]
    table("runs", ("", "run", "policy version", "policy"), runs)
    table("success", ROWS, build_success_rows(compared))
    table("failures", FAILURES, build_failure_rows(compared))
    differ = [(key, json_.dumps(of["first"]), json_.dumps(of["second"])) for key, of in compared["settings"].items()]
    table("settings that differ", ("", "A", "B"), differ)
    if not compared["rows"]:
        output.note("neither run has trajectories")
    if warning := warn_of_different_tasks(compared):
        output.note(warning)
