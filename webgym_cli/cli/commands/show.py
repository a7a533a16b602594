"""`webgym show`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from webgym_cli.cli.browse import open_in_browser
from webgym_cli.cli.options import IdsArg, JsonOpt, RunArg, read_ids, refuse_both
from webgym_cli.cli.output import Output
from webgym_cli.cli.run_index import open_run_index
from webgym_cli.errors import UsageError

if TYPE_CHECKING:
    from webgym_cli.inspect.page import EpisodeView
    from webgym_cli.store.run import RunDir

HtmlOpt = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write the episode to FILE as one self-contained HTML page."),
]
OpenOpt = Annotated[bool, typer.Option("--open", help="Write the page below RUN/pages and open it in the browser.")]


def show(run: RunArg, ids: IdsArg = None, html: HtmlOpt = None, open_: OpenOpt = False, json: JsonOpt = False) -> None:
    """Show episodes step by step.

    Shows observations, reasoning, responses, actions and verdicts. The HTML page also has the prompts, and the
    screenshots with the point or element of each action.

    Examples:
      webgym show runs/a train-0002-00017 --open
      webgym inspect-buffer runs/a --where "judged = false and steps > 8" -q | head -3 | webgym show runs/a -
      webgym show runs/a train-0002-00017 --json | jq -r .steps[].response

    Exit codes: 3.

    See also: webgym inspect-buffer, webgym compare, webgym report.
    """
    from webgym_cli.cli.commands.episode_text import episode_text
    from webgym_cli.inspect.page import read_episodes
    from webgym_cli.store.find_run import open_run
    from webgym_cli.store.outputs import refuse_output_in_run

    refuse_both({"--json": json, "--html or --open": html is not None or open_})
    directory, _ = open_run(run)
    names = _names(run, read_ids(ids), one=html is not None)
    output = Output(as_json=json)
    if html is not None:
        refuse_output_in_run(html)
    with open_run_index(directory, output) as index:
        for view in read_episodes(directory, index, names):
            if json:
                output.data(view.to_json())
            elif html is not None or open_:
                path = _write(directory, view, html)
                output.text(str(path))
                if open_:
                    open_in_browser(path.absolute().as_uri(), output)
            else:
                output.draw(episode_text(view))


def _names(run: Path, names: Sequence[str] | None, *, one: bool) -> list[str]:
    """Return the ids, each once. Raises `UsageError` for none, and for several where one is wanted."""
    unique = list(dict.fromkeys(names or ()))
    if not unique:
        raise UsageError(
            "no trajectory is named", hint=f"webgym inspect-buffer {run} -q | head -1 | webgym show {run} -"
        )
    if one and len(unique) > 1:
        raise UsageError(f"--html takes one trajectory, got {len(unique)}; --open writes a page for each")
    return unique


def _write(run: RunDir, view: EpisodeView, html: Path | None) -> Path:
    """Write an episode's page to the user's file, else below the run; return its path."""
    from webgym_cli.inspect.page import render_episode_page
    from webgym_cli.store.outputs import check_output
    from webgym_cli.store.screenshots import ScreenshotStore
    from webgym_cli.util.files import write_atomic

    page = render_episode_page(view, ScreenshotStore(run.screenshots))
    if html is not None:
        check_output(html, page)
    path = html or run.page(view.trajectory.id)
    write_atomic(path, page)
    return path
