"""Opens a page in the user's browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from webgym_cli.cli.output import Output

if TYPE_CHECKING:
    from webgym_cli.util.local_server import SecretServer

PortOpt = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0: a free one.")]
OpenOpt = Annotated[bool, typer.Option("--open", help="Open the page in the browser.")]


def open_in_browser(address: str, output: Output) -> None:
    """Open an address in the browser, or print a note if there is no browser."""
    import webbrowser

    try:
        opened = webbrowser.open(address)
    except webbrowser.Error:
        opened = False
    if not opened:
        output.note("there is no browser to open it with: open the page yourself")


def serve_pages(pages: SecretServer, output: Output, *, open_: bool) -> None:
    """Serve pages until Ctrl-C, after a line with their address. Raises `UsageError` if the port is taken."""
    from webgym_cli.jobs.signals import run_async

    async def serve() -> None:
        async with pages as server:
            output.text(server.url)
            output.flush()
            if open_:
                open_in_browser(server.url, output)
            await server.closing.wait()

    run_async(serve())
