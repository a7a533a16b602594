"""`webgym compare`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from webgym_cli.cli.options import JsonOpt, refuse_without_effect, run_argument
from webgym_cli.cli.output import Output
from webgym_cli.cli.run_index import open_run_index
from webgym_cli.errors import UsageError
from webgym_cli.records.groups import Split
from webgym_cli.util.optional import when

if TYPE_CHECKING:
    from webgym_cli.report.figures import Figure
    from webgym_cli.store.index.query import Index
    from webgym_cli.store.run import RunDir

SidesArg = Annotated[
    list[Path],
    run_argument("RUN...", "Runs, each followed by the versions to compare, if not all; or records of webgym eval."),
]
SplitOpt = Annotated[
    Split | None, typer.Option("--split", help="Split of versions (default: test, whose episodes are the same in all).")
]
TasksOpt = Annotated[bool, typer.Option("--tasks", help="Show which tasks and episodes changed.")]
TopOpt = Annotated[int, typer.Option("--top", min=0, help="Maximum number of rows of --tasks; 0: all.")]
CsvOpt = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE", help="Also write a row for each run to FILE; -: to stdout.")
]
AcrossOpt = Annotated[
    bool, typer.Option("--across", help="Also compare evaluations of other tasks, judges, decodings, browsers.")
]
_EVALUATIONS = "webgym compare EVALUATION EVALUATION"


def compare(
    sides: SidesArg,
    split: SplitOpt = None,
    tasks: TasksOpt = False,
    top: TopOpt = 20,
    csv: CsvOpt = None,
    across: AcrossOpt = False,
    json: JsonOpt = False,
) -> None:
    """Compare policy versions, or runs, with significance tests.

    Runs with their seeds in groups, of two runs also the newest versions; two versions of one run (default: the first
    and the newest), or evaluations of the same tasks. Episodes of the same task and seed are paired (McNemar's exact
    test).

    Examples:
      webgym compare runs/a 0 3 --tasks
      webgym compare runs/lr-*-seed-* --csv study.csv
      webgym compare runs/a 3 runs/b 3 --tasks --json | jq -r .lost[].second
      webgym compare evaluations/a evaluations/b evaluations/c --tasks
      webgym compare runs/a runs/b --json | jq .newest.p_value

    Exit codes: 3.

    See also: webgym report, webgym show.
    """
    from webgym_cli.compare.study import find_record
    from webgym_cli.store.outputs import refuse_output_in_run

    output = Output(as_json=json)
    if csv is not None and csv != Path("-"):
        refuse_output_in_run(csv)
    if any(records := [find_record(side) for side in sides]):
        refuse_without_effect("for evaluations", {"--split": split is not None, "--csv": csv is not None})
        if None in records:
            raise UsageError(f"{sides[records.index(None)]} is no evaluation, as the others are", hint=_EVALUATIONS)
        _compare_evaluations(output, records, top, tasks=tasks, across=across)
        return
    refuse_without_effect("for runs", {"--across": across})
    _compare_runs(output, _parse_sides(sides, csv), split, csv, top, tasks=tasks)


def _compare_runs(
    output: Output,
    named: Sequence[tuple[Path, list[int]]],
    split: Split | None,
    csv: Path | None,
    top: int,
    *,
    tasks: bool,
) -> None:
    """Compare runs, each with the versions that are named after it."""
    from webgym_cli.compare.views import build_version_tables
    from webgym_cli.store.find_run import open_run

    with ExitStack() as stack:
        runs = [(open_run(path)[0], versions) for path, versions in named]
        opened = [(run, stack.enter_context(open_run_index(run, output)), versions) for run, versions in runs]
        pairs = [(run, index) for run, index, versions in opened if not versions]
        chosen = split or Split.TEST
        if csv is not None or len(pairs) > 2:
            refuse_without_effect("for a row per run", {"--tasks": tasks, "--split": split is not None})
            _show_study(output, pairs, csv)
            return
        if len(pairs) == 2:
            newest = _compare_newest(output, pairs, chosen)
            _show_study(output, pairs, csv, newest)
            if newest and not output.as_json:
                _show(output, newest, build_version_tables(newest, tasks=tasks), top)
            return
        difference = _compare_versions(opened, chosen)
    _show(output, difference, build_version_tables(difference, tasks=tasks), top)


def _compare_evaluations(output: Output, sides: Sequence[Path | None], top: int, *, tasks: bool, across: bool) -> None:
    """Compare records of evaluations."""
    from webgym_cli.compare.study import compare_records
    from webgym_cli.compare.views import build_comparison_tables

    records = [record for record in sides if record]
    if len({record.resolve() for record in records}) < max(2, len(sides)):
        raise UsageError("an evaluation is compared with another one", hint=_EVALUATIONS)
    comparison = compare_records(records, across=across)
    _show(output, comparison, build_comparison_tables(comparison, tasks=tasks), when(tasks, top))


def _parse_sides(words: Sequence[Path], csv: Path | None) -> list[tuple[Path, list[int]]]:
    """Return the runs, each with the versions that follow it; these have no file. Raises `UsageError`."""
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
    if not any(counts) and len({path.resolve() for path, _ in sides}) < len(sides):
        raise UsageError("a run is named twice, and would count twice", hint="webgym compare RUN_A RUN_B")
    if csv is not None and any(counts):
        raise UsageError("--csv: a row belongs to a run", hint="webgym compare RUN... --csv FILE")
    return sides


def _compare_versions(opened: Iterable[tuple[RunDir, Index, list[int]]], split: Split) -> dict[str, Any]:
    """Compare two versions; of a run without any, its first and its newest."""
    from webgym_cli.compare.paired import ComparedVersion, compare_versions, find_versions

    sides = []
    for run, index, versions in opened:
        known = versions or find_versions(index, split)
        if not known:
            raise UsageError(f"{run.root}: no {split} trajectories", hint=f"webgym inspect-buffer {run.root}")
        if not versions and len(known) < 2:
            hint = f"webgym rollout {run.root} --split test --version N"
            raise UsageError(f"{run.root}: only version {known[0]} has {split} trajectories", hint=hint)
        chosen = versions or (known[0], known[-1])
        sides += [ComparedVersion(run, index, version) for version in chosen]
    return compare_versions(sides[0], sides[1], split)


def _compare_newest(output: Output, runs: Sequence[tuple[RunDir, Index]], split: Split) -> dict[str, Any] | None:
    """Compare the newest versions of two runs; None if one has no episodes of the split."""
    from webgym_cli.compare.paired import find_versions

    sides = [(run, index, find_versions(index, split)[-1:]) for run, index in runs]
    newest = None
    if all(versions for *_, versions in sides):
        newest = _compare_versions(sides, split)
    if newest is None or not newest["pairs"]:
        output.note(f"the newest versions have no scored {split} task in common, so that none is paired")
    return newest


def _show_study(
    output: Output, runs: Sequence[tuple[RunDir, Index]], csv: Path | None, newest: dict[str, Any] | None = None
) -> None:
    """Show a row for each run, and each group of seeds. `csv`: a file for the rows, or -.

    `newest`: the comparison of the newest versions of two runs, as data.
    """
    from webgym_cli.compare.study import build_study, render_csv
    from webgym_cli.compare.views import build_study_tables
    from webgym_cli.store.outputs import check_output
    from webgym_cli.util.files import write_atomic

    study = build_study(runs)
    if csv == Path("-"):
        output.text(render_csv(study).rstrip("\n"))
        return
    if csv is not None:
        content = render_csv(study).encode()
        check_output(csv, content)
        write_atomic(csv, content)
        output.note(f"the rows: {csv}")
    _show(output, {**study, "newest": newest}, build_study_tables(study))


def _show(output: Output, comparison: dict[str, Any], tables: Iterable[Figure], top: int = 0) -> None:
    if output.as_json:
        output.data(comparison)
        return
    for of in tables:
        rows = of.rows
        if rows:
            output.table(of.title, of.columns, rows[: top or None])
        if top and len(rows) > top:
            output.note(f"{of.title}: {len(rows) - top} more; --top 0 shows all")
