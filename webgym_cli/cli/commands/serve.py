"""`webgym serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from webgym_cli.cli.options import RunArg, StageOptions

if TYPE_CHECKING:
    from webgym_cli.records.events import EventSink
    from webgym_cli.serve.plan import ServerPlan

ModelOpt = Annotated[
    str | None,
    typer.Option("--model", metavar="MODEL", help="Folder or hub id to serve (default: the run's current policy)."),
]


def serve(run: RunArg, options: StageOptions, model: ModelOpt = None) -> None:
    """Serve the run's current policy with vLLM until Ctrl-C.

    The run is not changed. The server provides the OpenAI API at the printed URL; vLLM's log is
    RUN/logs/serve_<pid>/vllm.log.

    Examples:
      webgym serve runs/a
      webgym serve runs/a -s serve.port=0
      webgym serve runs/a --dry-run

    Exit codes: 3, 4.

    See also: webgym rollout, webgym setup.
    """
    from webgym_cli.cli.stage import resolve
    from webgym_cli.errors import Terminated
    from webgym_cli.jobs.signals import run_async
    from webgym_cli.serve.plan import plan_servers
    from webgym_cli.store.checkpoints import policy_path
    from webgym_cli.venvs.locate import resolve_device, role_python

    directory, settings = resolve(run, options)
    output = options.open_output()
    weights = model or str(policy_path(directory, settings))
    device = resolve_device(settings.venvs.device)
    plans = plan_servers(settings, weights, role_python(settings, "serve"), device)
    if options.dry_run:
        for plan in plans:
            output.show(plan.to_json())
        return
    # A folder that no other command writes to: the run is not locked.
    logs = directory.logs / f"serve_{os.getpid()}"
    with output.progress() as board:
        try:
            run_async(_serve(plans, settings.serve.restarts, logs, board))
        except (KeyboardInterrupt, Terminated):
            output.note("vLLM is stopped")
            raise


async def _serve(plans: list[ServerPlan], restarts: int, logs: Path, sink: EventSink) -> None:
    from webgym_cli.serve.fleet import Fleet

    fleet = Fleet(plans, logs, sink, restarts=restarts)
    try:
        await fleet.serve(plans[0].model)
        await fleet.watch()
    finally:
        await fleet.stop()
