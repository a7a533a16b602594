"""`webgym compare`."""

from __future__ import annotations

import json as json_
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from webgym_cli.cli.options import JsonOpt, run_argument
from webgym_cli.cli.output import Output
from webgym_cli.cli.run_index import open_run_index
from webgym_cli.errors import UsageError
from webgym_cli.records.groups import Split

if TYPE_CHECKING:
    from webgym_cli.compare.runs import Comparison
    from webgym_cli.compare.versions import ComparedVersion
    from webgym_cli.store.index.query import Index
    from webgym_cli.store.run import RunDir

SidesArg = Annotated[list[Path], run_argument("RUN...", "Runs, each followed by the versions to compare, if not all.")]
SplitOpt = Annotated[Split, typer.Option("--split", help="Split of versions; test episodes are the same in all.")]
TasksOpt = Annotated[bool, typer.Option("--tasks", help="Show which tasks and episodes changed.")]
TopOpt = Annotated[int, typer.Option("--top", min=0, help="Maximum number of rows of --tasks; 0: all.")]
HtmlOpt = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Also write the comparison to FILE, as one HTML page.")
]
_SHOWN = ("gained", "lost")


def compare(
    sides: SidesArg,
    split: SplitOpt = Split.TEST,
    tasks: TasksOpt = False,
    top: TopOpt = 20,
    html: HtmlOpt = None,
    json: JsonOpt = False,
) -> None:
    """Compare policy versions, or runs, with significance tests.

    Two runs: success by split and iteration, steps, failures, and the settings that differ; of more runs, each is
    compared with the first. A run with two versions (default: its first and its newest), or two runs with one version
    each: the episodes that both have, gained, lost, kept or failed.

    Episodes of the same task and seed are paired and compared by McNemar's exact test. Without pairs, versions are
    compared by task, and runs by the 95 % interval of the difference of two proportions. Rates of different tasks get
    no verdict.

    Examples:
      webgym compare runs/a 0 3 --tasks
      webgym compare runs/a runs/b --html ab.html
      webgym compare runs/a 3 runs/b 3 --tasks --json | jq -r .lost[].second
      webgym compare runs/a runs/b --json | jq '.rows[] | select(.significant)'

    Exit codes: 3.

    See also: webgym report, webgym show.
    """
    from webgym_cli.store.run import open_run, refuse_output_in_run

    output = Output(as_json=json)
    if html is not None:
        refuse_output_in_run(html)
    named = _parse_sides(sides)
    with ExitStack() as stack:
        runs = [(open_run(path)[0], versions) for path, versions in named]
        opened = [(run, stack.enter_context(open_run_index(run, output)), versions) for run, versions in runs]
        if len(opened) > 1 and not any(versions for _, _, versions in opened):
            _compare_runs(output, [(run, index) for run, index, _ in opened], split, tasks, top, html)
            return
        if html is not None:
            raise UsageError("--html: a page compares two runs", hint="webgym compare RUN_A RUN_B --html FILE")
        difference = _compare_versions(_choose_versions(opened, split), split)
    if json:
        output.data(difference)
    else:
        _show_versions(output, difference, tasks, top)


def _parse_sides(words: Sequence[Path]) -> list[tuple[Path, list[int]]]:
    """Return the runs, each with the versions that follow it. Raises `UsageError`."""
    sides: list[tuple[Path, list[int]]] = []
    for word in words:
        if sides and str(word).isdecimal():
            sides[-1][1].append(int(str(word)))
        else:
            sides.append((word, []))
    counts = [len(versions) for _, versions in sides]
    if counts not in ([0], [2], [1, 1]) and any(counts):
        usage = "webgym compare RUN VERSION VERSION, or RUN_A VERSION RUN_B VERSION"
        raise UsageError("two versions are compared, of one run or of two", hint=usage)
    return sides


def _choose_versions(opened: list[tuple[RunDir, Index, list[int]]], split: Split) -> list[ComparedVersion]:
    from webgym_cli.compare.versions import ComparedVersion, find_versions

    sides = []
    for run, index, versions in opened:
        if not versions:
            known = find_versions(run, index, split)
            versions = [known[0], known[-1]]
        sides += [ComparedVersion(run, index, version) for version in versions]
    return sides


def _compare_versions(sides: list[ComparedVersion], split: Split) -> dict[str, Any]:
    from webgym_cli.compare.versions import compare_versions

    return compare_versions(sides[0], sides[1], split)


def _show_versions(output: Output, difference: dict[str, Any], tasks: bool, top: int) -> None:
    unit = f"{difference['unit']}s"
    columns = ("", "run", "iteration", "success", "steps", f"{unit} only here")
    names = ("run", "iteration", "success_rate", "mean_steps", "only_here")
    rows = [(side, *(difference[side][name] for name in names)) for side in ("first", "second")]
    output.table(f"{difference['split']}, {difference['pairs']} {unit}", columns, rows)
    counts = difference["counts"]
    columns = (*counts, "unscored", "p (McNemar)")
    output.table("change", columns, [(*counts.values(), difference["unscored"], difference["p_value"])])
    if tasks:
        _show_tasks(output, difference, top)


def _show_tasks(output: Output, difference: dict[str, Any], top: int) -> None:
    changed = [(task, *of.values()) for task, of in difference["by_task"].items() if of["gained"] or of["lost"]]
    _show_rows(output, "by task", ("task", "pairs", *difference["counts"]), changed, top)
    for kind in _SHOWN:
        rows = [(pair["task"], pair.get("seed"), pair["first"], pair["second"]) for pair in difference[kind]]
        _show_rows(output, kind, ("task", "seed", "first", "second"), rows, top)


def _show_rows(output: Output, title: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]], top: int) -> None:
    if not rows:
        return
    output.table(title, tuple(columns), list(rows[: top or None]))
    if top and len(rows) > top:
        output.note(f"{title}: {len(rows) - top} more; --top 0 shows all")


def _compare_runs(
    output: Output, runs: list[tuple[RunDir, Index]], split: Split, tasks: bool, top: int, html: Path | None
) -> None:
    """Compare each run with the first one."""
    from webgym_cli.compare.runs import ComparedRun, compare_runs
    from webgym_cli.compare.versions import ComparedVersion, find_versions
    from webgym_cli.compare.views import render_comparison
    from webgym_cli.store.run import check_output
    from webgym_cli.util.files import write_atomic

    if html is not None and len(runs) > 2:
        raise UsageError("--html: a page compares two runs", hint="webgym compare RUN_A RUN_B --html FILE")
    for other in runs[1:]:
        compared = compare_runs(ComparedRun(*runs[0]), ComparedRun(*other))
        if html is not None:
            page = render_comparison(compared)
            check_output(html, page)
            write_atomic(html, page)
            output.note(f"the page: {html}")
        newest = [ComparedVersion(*side, find_versions(*side, split)[-1]) for side in (runs[0], other)] if tasks else []
        difference = _compare_versions(newest, split) if newest else {}
        if output.as_json:
            output.data({**compared, "versions": difference} if difference else compared)
            continue
        _show_runs(output, compared)
        if difference:
            _show_versions(output, difference, tasks, top)


def _show_runs(output: Output, compared: Comparison) -> None:
    from webgym_cli.compare.views import (
        FAILURES,
        ROWS,
        build_failure_rows,
        build_success_rows,
        warn_of_different_tasks,
    )

    sides = [("A", compared["first"]), ("B", compared["second"])]
    runs = [(name, side["run"], str(side["policy_version"]), side["policy"]) for name, side in sides]
    _show_rows(output, "runs", ("", "run", "policy version", "policy"), runs, 0)
    _show_rows(output, "success", ROWS, build_success_rows(compared), 0)
    _show_rows(output, "failures", FAILURES, build_failure_rows(compared), 0)
    differ = [(key, json_.dumps(of["first"]), json_.dumps(of["second"])) for key, of in compared["settings"].items()]
    _show_rows(output, "settings that differ", ("", "A", "B"), differ, 0)
    if not compared["rows"]:
        output.note("neither run has trajectories")
    if warning := warn_of_different_tasks(compared):
        output.note(warning)
