"""Opens a page in the user's browser."""

from __future__ import annotations

from pathlib import Path

from webgym_cli.cli.output import Output


def open_in_browser(page: Path | str, output: Output) -> None:
    """Open a file or an address in the browser, or print a note if there is no browser."""
    import webbrowser

    try:
        opened = webbrowser.open(page if isinstance(page, str) else page.absolute().as_uri())
    except webbrowser.Error:
        opened = False
    if not opened:
        output.note("there is no browser to open it with: open the page yourself")
