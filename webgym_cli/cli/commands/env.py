"""`webgym env`: webgym's environments for other trainers."""

from __future__ import annotations

from typing import Annotated

import typer

from webgym_cli.cli.manual import command, make_group
from webgym_cli.cli.options import SettingsOptions
from webgym_cli.cli.output import Output

app = make_group("Serve environments to other trainers.")

HostOpt = Annotated[
    str, typer.Option("--host", help="Address to listen on; one that others reach needs ENV_SERVER_TOKEN.")
]
PortOpt = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0: a free one.")]
SessionsOpt = Annotated[
    int | None,
    typer.Option("--sessions", min=1, help="Maximum of open sessions; default: rollout.concurrency, or by memory."),
]
TimeoutOpt = Annotated[
    float, typer.Option("--session-timeout", min=1, help="Seconds without a message that end a session.")
]


@command(app)
def serve(
    options: SettingsOptions,
    host: HostOpt = "127.0.0.1",
    port: PortOpt = 8920,
    sessions: SessionsOpt = None,
    session_timeout: TimeoutOpt = 600.0,
) -> None:
    """Serve the tasks' environments over OpenEnv, until Ctrl-C.

    The first line of the output is the base URL for OpenEnv's clients. A connection is a session with a browser context
    of its own. It needs the package openenv.

    Examples:
      webgym env serve -c sites
      webgym env serve -s tasks.train=tasks.jsonl -s context_config.prompt_version=full --sessions 16
      webgym env serve -c sites --host 0.0.0.0

    See also: webgym gateway, webgym tasks check.
    """
    import asyncio

    from webgym_cli.env_server.host import SessionHost
    from webgym_cli.errors import VenvError
    from webgym_cli.jobs.signals import run_async
    from webgym_cli.rollout.memory_limiter import default_concurrency

    try:
        from webgym_cli.env_server.server import serve_host
    except ImportError as error:
        raise VenvError(f"webgym env serve: {error}", hint="pip install 'webgym[openenv]'") from error
    settings, output = options.load(), Output()
    limit = sessions or default_concurrency(settings.rollout)

    async def run() -> None:
        async with SessionHost(settings) as opened, serve_host(opened, host, port, limit, session_timeout) as address:
            output.text(address)
            output.flush()
            counts = ", ".join(f"{len(tasks)} {split} tasks" for split, tasks in opened.tasks.items())
            output.note(f"{counts}, at most {limit} sessions")
            await asyncio.Event().wait()

    run_async(run())
