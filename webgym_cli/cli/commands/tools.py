"""`webgym tools`: which tools and reward functions there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from webgym_cli.cli.manual import Manual, ManualGroup
from webgym_cli.cli.options import ConfigOpt, JsonOpt, SetOpt
from webgym_cli.cli.output import Output

if TYPE_CHECKING:
    from webgym_cli.config.agent import AgentSettings
    from webgym_cli.scoring.define import Reward
    from webgym_cli.tools.define import Tool

app = typer.Typer(name="tools", cls=ManualGroup, no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def tools() -> None:
    """See the tools and the reward functions that there are."""


@app.command("list", cls=Manual)
def list_(config: ConfigOpt = None, set_: SetOpt = None, json: JsonOpt = False) -> None:
    """List all tools and reward functions.

    Those that are built in, of installed packages, and those that the settings name. With --json each line has all that
    the policy is told of a tool (`schema`), or the arguments that a reward function takes. Exits with 2 when one can't
    be loaded.

    Examples:
      webgym tools list
      webgym tools list -s 'agent.tools=["my_tools.py:look_up"]' --json | jq .schema

    See also: webgym rollout, webgym tasks check.
    """
    from webgym_cli.config.load import load
    from webgym_cli.errors import UsageError

    output, problems = Output(as_json=json), []
    rows = []
    for row in _rows(load(config or (), set_ or ()).agent):
        if row.get("problem"):
            problems.append(f"{row['kind']} {row['name']} ({row['origin']})")
        if json:
            output.data(row)
        rows.append((row["name"], row["kind"], row["origin"], row.get("problem") or row["description"].split("\n")[0]))
    if not json:
        output.table("", ("name", "kind", "origin", "what it does"), rows)
    if problems:
        raise UsageError(f"can't be loaded: {', '.join(problems)}", hint="fix it, then: webgym tools list")


def _rows(agent: AgentSettings) -> Iterator[dict[str, Any]]:
    from webgym_cli.scoring.registry import REWARDS
    from webgym_cli.tools.registry import TOOLS

    for known in TOOLS.known(agent.tools):
        about = _tool(known.item) if known.item else {"problem": known.problem}
        yield {"kind": "tool", "name": known.name, "origin": known.origin, **about}
    for graded in REWARDS.known((agent.reward_name,)):
        about = _reward(graded.item) if graded.item else {"problem": graded.problem}
        yield {"kind": "reward", "name": graded.name, "origin": graded.origin, **about}


def _tool(tool: Tool) -> dict[str, Any]:
    return {
        "description": tool.description,
        "terminal": tool.terminal,
        "stateful": tool.stateful,
        "schema": tool.schema,
    }


def _reward(reward: Reward) -> dict[str, Any]:
    return {
        "description": reward.description,
        "required": list(reward.required),
        "optional": list(reward.optional),
        "takes_all": reward.takes_all,
    }
