"""`webgym fixture`: the local stand-ins for what is not ours."""

from __future__ import annotations

from typing import Annotated

import typer

from webgym_cli.cli.output import Output

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

PortOpt = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")]


@app.callback()
def fixture() -> None:
    """Run a local stand-in for the open web or for a judge, until Ctrl-C."""


@app.command()
def sites(port: PortOpt = 8800) -> None:
    """Serve the fixture sites for people: shop, mail, wiki, booking.

    The first line says how to open them in a browser of yours: their names have to lead to the port.

    Example: webgym fixture sites --port 8800
    """
    from webgym_cli.jobs.signals import run_async
    from webgym_cli.testing.sites.registry import SITE_HOSTS
    from webgym_cli.testing.sites.server import serve_forever

    output = Output()

    def started(address: str) -> None:
        output.text(address)
        output.flush()
        output.note(f"sites: {', '.join(f'http://{host}/_/' for host in SITE_HOSTS)}, and http://lab.test/")
        output.note(f'a browser finds them with --host-resolver-rules="MAP *.test {address}"')

    run_async(serve_forever(port, started=started))


@app.command()
def judge(port: PortOpt = 0) -> None:
    """Serve the scripted judge: plain rules behind the OpenAI protocol. Its first line is its base URL.

    It looks at no picture and judges nothing real: it is for tests and for trying out `webgym judge`.

    Example: webgym fixture judge --port 8801
    """
    import asyncio

    from webgym_cli.jobs.signals import run_async
    from webgym_cli.testing.judge_server import JudgeServer

    output = Output()

    async def serve() -> None:
        async with JudgeServer(port=port) as server:
            output.text(server.base_url)
            output.flush()
            await asyncio.Event().wait()

    run_async(serve())
