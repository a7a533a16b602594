"""`webgym label`."""

from __future__ import annotations

from webgym_cli.cli.browse import OpenOpt, PortOpt, serve_pages
from webgym_cli.cli.options import IdsArg, RunArg, read_ids
from webgym_cli.cli.output import Output


def label(run: RunArg, ids: IdsArg = None, port: PortOpt = 0, open_: OpenOpt = False) -> None:
    """Label episodes by hand.

    Serves a page on this machine alone; the first line of the output is its address. It shows one episode after the
    other, without its reward and verdicts. Keys: y yes, n no, u unsure, b back.

    Examples:
      webgym label runs/a --open
      webgym inspect-buffer runs/a --split test -q | webgym label runs/a -
      webgym judge runs/a --against runs/a

    Exit codes: 3.

    See also: webgym judge, webgym show, webgym inspect-buffer.
    """
    from webgym_cli.cli.run_index import open_run_index
    from webgym_cli.inspect.labelling import LabelServer, read_episodes_to_label
    from webgym_cli.store.find_run import open_run

    directory, _ = open_run(run)
    output, names = Output(), read_ids(ids)
    with open_run_index(directory, output) as index:
        episodes = read_episodes_to_label(directory, index, names)
    serve_pages(LabelServer(directory, episodes, port), output, open_=open_)
