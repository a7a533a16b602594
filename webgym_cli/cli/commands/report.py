"""`webgym report`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from webgym_cli.cli.browse import OpenOpt, open_in_browser
from webgym_cli.cli.options import DryRunOpt, JsonOpt, RunArg
from webgym_cli.cli.output import Output
from webgym_cli.cli.run_index import open_run_index

HtmlOpt = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write the page to FILE (default: RUN/report.html).")
]
GpusOpt = Annotated[
    int | None,
    typer.Option(
        "--gpus", metavar="N", min=0, max=10**6, help="GPUs of the run, for GPU hours (default: 1; on a CPU 0)."
    ),
]
PriceOpt = Annotated[
    float | None, typer.Option("--gpu-hour-price", metavar="PRICE", min=0, max=1e6, help="Price of one GPU hour.")
]


def report(
    run: RunArg,
    html: HtmlOpt = None,
    open_: OpenOpt = False,
    gpus: GpusOpt = None,
    price: PriceOpt = None,
    json: JsonOpt = False,
    dry_run: DryRunOpt = False,
) -> None:
    """Write a report of the run as one HTML page.

    The page is self-contained and needs no network. It can be written while a command works on the run. --json also
    prints the numbers.

    Examples:
      webgym report runs/a --open
      webgym report runs/a --gpus 8 --gpu-hour-price 2.5 --html a.html
      webgym report runs/a --json | jq .timing.idle_share

    Exit codes: 3.

    See also: webgym view, webgym compare, webgym inspect-buffer.
    """
    from webgym_cli.report.facts import gather_facts
    from webgym_cli.report.page import render_report
    from webgym_cli.store.find_run import open_run
    from webgym_cli.store.outputs import check_output, refuse_output_in_run
    from webgym_cli.util.files import write_atomic
    from webgym_cli.venvs.locate import resolve_device

    directory, settings = open_run(run)
    if gpus is None:
        gpus = int(price is not None or resolve_device(settings.venvs.device) == "cuda")
    output, path = Output(as_json=json), html or directory.report
    is_own = path.absolute() == directory.report
    if not is_own:
        refuse_output_in_run(path)
    with open_run_index(directory, output, kept=not dry_run) as index:
        facts = gather_facts(directory, index, gpus, price)
        if dry_run:
            plan = {"event": "plan", "stage": "report", "page": str(path), "trajectories": facts["trajectories"]}
            output.show({**plan, "replaces": path.exists()})
            return
    content = render_report(facts)
    if not is_own:
        check_output(path, content)
    write_atomic(path, content)
    _show_summary(output, path, {"event": "report", "page": str(path), "bytes": len(content), **facts})
    if open_:
        open_in_browser(path.absolute().as_uri(), output)


def _show_summary(output: Output, path: Path, facts: Mapping[str, Any]) -> None:
    """Say where the page is and how large."""
    from pydantic_core import to_jsonable_python

    from webgym_cli.util.text import format_count

    if output.as_json:
        output.data(to_jsonable_python(facts))
    else:
        output.text(str(path))
    for warning in facts["warnings"]:
        output.note(f"warning: {warning}")
    output.note(
        f"{facts['bytes'] / 1e3:,.0f} kB, {format_count(facts['trajectories'], 'episode')}: webgym view shows them"
    )
