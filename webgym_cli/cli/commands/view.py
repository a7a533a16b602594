"""`webgym view`."""

from __future__ import annotations

from webgym_cli.cli.browse import OpenOpt, PortOpt, serve_pages
from webgym_cli.cli.options import RunArg
from webgym_cli.cli.output import Output


def view(run: RunArg, port: PortOpt = 0, open_: OpenOpt = False) -> None:
    """Look at a run's episodes in the browser.

    Serves pages on this machine alone; the first line of the output is their address. They have all episodes, to search
    and to filter by task, site, outcome, failure, iteration, policy, verdict, reward or any SQL condition; each episode
    step by step, with its clicks, prompts, tokens and verdicts; two of them side by side; and the report's charts.
    Keys: / search, n next, p previous, j and k by steps, Esc back. The episodes are those of the start.

    Examples:
      webgym view runs/a --open
      webgym view runs/a --port 8800

    Exit codes: 3.

    See also: webgym show, webgym report, webgym label, webgym inspect-buffer.
    """
    from webgym_cli.cli.run_index import open_run_index
    from webgym_cli.inspect.viewer import EpisodeTable, ViewServer
    from webgym_cli.report.facts import gather_facts
    from webgym_cli.report.page import render_report
    from webgym_cli.store.run import open_run

    directory, _ = open_run(run)
    output = Output()
    with open_run_index(directory, output) as index:
        server = ViewServer(
            directory, EpisodeTable(index), lambda: render_report(gather_facts(directory, index, 0, None)), port
        )
        serve_pages(server, output, open_=open_)
