"""`webgym diff`, the earlier name of `webgym compare RUN VERSION VERSION --tasks`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from webgym_cli.cli.commands.compare import SplitOpt, TopOpt, compare
from webgym_cli.cli.options import JsonOpt, RunArg
from webgym_cli.cli.output import Output


def diff(
    run: RunArg,
    first: Annotated[int, typer.Argument(metavar="A", min=0)],
    second: Annotated[int, typer.Argument(metavar="B", min=0)],
    split: SplitOpt = None,
    with_: Annotated[Path | None, typer.Option("--with", metavar="RUN2")] = None,
    top: TopOpt = 20,
    json: JsonOpt = False,
) -> None:
    """Compare two versions: the earlier name of `webgym compare RUN A B --tasks`.

    See also: webgym compare.
    """
    Output(as_json=json).note("note: `webgym diff RUN A B` is now `webgym compare RUN A B --tasks`")
    sides = [run, Path(str(first)), *filter(None, [with_]), Path(str(second))]
    compare(sides, split=split, tasks=True, top=top, json=json)
