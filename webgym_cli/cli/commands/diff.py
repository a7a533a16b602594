"""`webgym diff`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from webgym_cli.cli import completion as complete
from webgym_cli.cli.options import JsonOpt, RunArg
from webgym_cli.cli.output import Output
from webgym_cli.cli.run_index import open_run_index
from webgym_cli.records.groups import Split

FirstArg = Annotated[int, typer.Argument(metavar="A", min=0, help="The baseline iteration.")]
SecondArg = Annotated[int, typer.Argument(metavar="B", min=0, help="The iteration that is compared with it.")]
SplitOpt = Annotated[Split, typer.Option("--split", help="Split; test episodes are the same in every iteration.")]
WithOpt = Annotated[
    Path | None,
    typer.Option("--with", metavar="RUN2", help="The run of iteration B (default: RUN).", autocompletion=complete.runs),
]
TopOpt = Annotated[int, typer.Option("--top", min=0, help="Maximum number of rows per table; 0: all.")]
_SHOWN = ("gained", "lost")


def diff(
    run: RunArg,
    first: FirstArg,
    second: SecondArg,
    split: SplitOpt = Split.TEST,
    with_: WithOpt = None,
    top: TopOpt = 20,
    json: JsonOpt = False,
) -> None:
    """Compare two iterations on the episodes that they share.

    Shows the episodes that were gained, lost, kept and failed, and whether the change is significant. Episodes are
    paired by task and seed; without shared seeds, tasks are paired (solved: at least half of the scored attempts). The
    p-value is that of McNemar's exact test on gains and losses.

    Examples:
      webgym diff runs/a 0 3
      webgym diff runs/a 3 3 --with runs/b --json | jq -r .lost[].second

    Exit codes: 3.

    See also: webgym compare, webgym show.
    """
    from webgym_cli.inspect.diff import ComparedIteration, diff_iterations
    from webgym_cli.store.run import open_run

    output = Output(as_json=json)
    directories = [open_run(path)[0] for path in (run, with_ or run)]
    with ExitStack() as stack:
        indexes = [stack.enter_context(open_run_index(directory, output)) for directory in directories]
        before, after = map(ComparedIteration, directories, indexes, (first, second))
        difference = diff_iterations(before, after, split)
    if json:
        output.data(difference)
    else:
        _show(output, difference, top)


def _show(output: Output, difference: dict[str, Any], top: int) -> None:
    unit = f"{difference['unit']}s"
    sides = [(name, difference[name]) for name in ("first", "second")]
    columns = ("", "run", "iteration", "success", "steps", f"{unit} only here")
    names = ("run", "iteration", "success_rate", "mean_steps", "only_here")
    output.table(
        f"{difference['split']}, {difference['pairs']} {unit}", columns, [(k, *(v[n] for n in names)) for k, v in sides]
    )
    counts = difference["counts"]
    output.table(
        "change",
        (*counts, "unscored", "p (McNemar)"),
        [(*counts.values(), difference["unscored"], difference["p_value"])],
    )
    changed = [(task, *of.values()) for task, of in difference["by_task"].items() if of["gained"] or of["lost"]]
    _cut(output, "by task", ("task", "pairs", *counts), changed, top)
    for kind in _SHOWN:
        rows = [(pair["task"], pair.get("seed"), pair["first"], pair["second"]) for pair in difference[kind]]
        _cut(output, kind, ("task", "seed", "first", "second"), rows, top)


def _cut(output: Output, title: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]], top: int) -> None:
    if not rows:
        return
    shown = rows[: top or None]
    output.table(title, columns, shown)
    if more := len(rows) - len(shown):
        output.note(f"{title}: {more} more; --top 0 shows all")
