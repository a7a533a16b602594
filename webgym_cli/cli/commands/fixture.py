"""`webgym fixture`: the local stand-ins for what is not ours."""

from __future__ import annotations

from typing import Annotated

import typer

from webgym_cli.cli.manual import command, make_group
from webgym_cli.cli.output import Output

app = make_group("Run a local stand-in for the open web, or for a judge.")

PortOpt = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0: a free one.")]


@command(app)
def sites(port: PortOpt = 8800) -> None:
    """Serve the fixture sites: a shop, mail, and test pages.

    For people: stderr shows how to open them in a browser, which has to resolve their names to the port.

    Examples:
      webgym fixture sites --port 8800

    See also: webgym fixture judge, webgym rollout.
    """
    from webgym_cli.environments.fixture_sites.registry import SITE_HOSTS
    from webgym_cli.environments.fixture_sites.server import serve_forever
    from webgym_cli.jobs.signals import run_async

    output = Output()

    def started(address: str) -> None:
        output.text(address)
        output.flush()
        output.note(f"sites: {', '.join(f'http://{host}/_/' for host in SITE_HOSTS)}, and http://lab.test/")
        output.note(f'a browser finds them with --host-resolver-rules="MAP *.test {address}"')

    run_async(serve_forever(port, started=started))


@command(app)
def judge(port: PortOpt = 0) -> None:
    """Serve the scripted judge: rules, in the OpenAI protocol.

    The first line of the output is its base URL. It ignores screenshots and gives no real verdicts: it is for tests and
    for trying out `webgym judge`.

    Examples:
      webgym fixture judge --port 8801

    See also: webgym judge, webgym fixture sites.
    """
    import asyncio

    from webgym_cli.jobs.signals import run_async
    from webgym_cli.rewards.judge.scripted_server import ScriptedJudgeServer

    output = Output()

    async def serve() -> None:
        async with ScriptedJudgeServer(port=port) as server:
            output.text(server.base_url)
            output.flush()
            await asyncio.Event().wait()

    run_async(serve())
