"""`webgym gateway`."""

from __future__ import annotations

from typing import Annotated

import typer

from webgym_cli.cli.commands.env import PortOpt
from webgym_cli.cli.commands.rollout import PolicyOpt, SplitOpt
from webgym_cli.cli.options import RunArg, StageOptions
from webgym_cli.records.groups import Split

HostOpt = Annotated[
    str, typer.Option("--host", help="Address to listen on; one that others reach needs GATEWAY_TOKEN.")
]


def gateway(
    run: RunArg,
    options: StageOptions,
    split: SplitOpt = Split.TRAIN,
    policy: PolicyOpt = None,
    host: HostOpt = "127.0.0.1",
    port: PortOpt = 8900,
) -> None:
    """Record the sessions of any OpenAI-compatible agent.

    Agents call the printed base URL with a session's key, by chat completions or Responses, until Ctrl-C. The run's
    policy answers. A session that is ended is one trajectory, whose calls are trained one by one.

    Examples:
      webgym gateway runs/a -c demo
      webgym gateway runs/a --split test --port 0
      webgym gateway runs/a --policy http://HOST:8000/v1

    Exit codes: 3, 4, 75, 86.

    See also: webgym rollout, webgym judge, webgym prepare.
    """
    from webgym_cli.cli.stage import resolve, stage
    from webgym_cli.loop.rollouts import serve_gateway

    directory, settings = resolve(run, options)
    output = options.open_output()
    acting = policy or settings.rollout.policy
    if options.dry_run:
        output.show({"event": "plan", "stage": "gateway", "split": split, "policy": acting, "host": host, "port": port})
        return
    own_options = {"split": split, "policy": policy, "host": host, "port": port}
    with stage("gateway", directory, settings, output, own_options) as at:
        at.execute(lambda context: serve_gateway(context, split, acting, host, port))
