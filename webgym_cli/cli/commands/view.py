"""`webgym view`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from webgym_cli.cli.browse import OpenOpt, PortOpt, serve_pages
from webgym_cli.cli.options import run_argument
from webgym_cli.cli.output import Output

RunsArg = Annotated[list[Path], run_argument("RUN...", "Runs, or folders of runs.")]


def view(runs: RunsArg, port: PortOpt = 0, open_: OpenOpt = False) -> None:
    """Look at runs' episodes in the browser.

    Serves pages on this machine alone; the first line of the output is their address. They have the episodes, step by
    step and side by side, with filters, and the report's charts; several runs begin with their curves in one page.

    Examples:
      webgym view runs/a --open
      webgym view runs
      webgym view runs/lr-*
      webgym view runs/a --port 8800

    Exit codes: 3.

    See also: webgym show, webgym report, webgym label, webgym inspect-buffer.
    """
    from webgym_cli.cli.run_index import update_run_index
    from webgym_cli.compare.views import render_study
    from webgym_cli.inspect.viewer import ViewServer
    from webgym_cli.report.facts import gather_facts
    from webgym_cli.report.page import render_report
    from webgym_cli.store.find_run import find_run
    from webgym_cli.store.run import RunDir

    output = Output()
    opened: list[RunDir] = []
    for path in runs:
        inner = [] if RunDir(path).exists else [run for run in map(RunDir, sorted(path.glob("*/"))) if run.exists]
        opened += inner or [find_run(path)]
    with ExitStack() as stack:
        server = ViewServer(
            # What an index lacks is read here, where there is a progress bar; the server opens it.
            [update_run_index(run, output, stack) for run in opened],
            lambda run, index: render_report(gather_facts(run, index, 0, None)),
            render_study,
            port,
        )
        serve_pages(server, output, open_=open_)
