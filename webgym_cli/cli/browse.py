"""Opens a written page in the user's browser."""

from __future__ import annotations

from pathlib import Path

from webgym_cli.cli.output import Output


def open_in_browser(path: Path, output: Output) -> None:
    """Open a page in the browser, or print a note if there is no browser."""
    import webbrowser

    try:
        opened = webbrowser.open(path.absolute().as_uri())
    except webbrowser.Error:
        opened = False
    if not opened:
        output.note("there is no browser to open it with: open the file yourself")
