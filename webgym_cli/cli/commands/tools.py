"""`webgym tools`: which tools and reward functions there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from webgym_cli.cli.manual import command, make_group
from webgym_cli.cli.options import DataOptions
from webgym_cli.cli.output import Output

if TYPE_CHECKING:
    from webgym_cli.config.agent import AgentSettings
    from webgym_cli.util.registry import RegisteredItem

app = make_group("List tools and reward functions.")


@command(app, "list")
def list_(options: DataOptions) -> None:
    """List all tools and reward functions.

    With --json each line has a tool's description in the prompt (`schema`), or the arguments of a reward function.
    Exits with 2 if one can't be loaded.

    Examples:
      webgym tools list
      webgym tools list -s 'agent.tools=["my_tools.py:look_up"]' --json | jq .schema

    See also: webgym rollout, webgym tasks check.
    """
    from webgym_cli.errors import UsageError

    output, problems = Output(as_json=options.json), []
    rows = []
    for row in _rows(options.load().agent):
        if row.get("problem"):
            problems.append(f"{row['kind']} {row['name']} ({row['origin']})")
        if options.json:
            output.data(row)
        rows.append((row["name"], row["kind"], row["origin"], row.get("problem") or row["description"].split("\n")[0]))
    if not options.json:
        output.table("", ("name", "kind", "origin", "what it does"), rows)
    if problems:
        raise UsageError(f"can't be loaded: {', '.join(problems)}", hint="fix it, then: webgym tools list")


def _rows(agent: AgentSettings) -> Iterator[dict[str, Any]]:
    from webgym_cli.scoring.registry import REWARDS
    from webgym_cli.tools.registry import TOOLS

    kinds: tuple[tuple[str, Iterator[RegisteredItem[Any]], tuple[str, ...]], ...] = (
        ("tool", TOOLS.known(agent.tools), ("description", "terminal", "stateful", "schema")),
        ("reward", REWARDS.known((agent.reward_name,)), ("description", "required", "optional", "takes_all")),
    )
    for kind, known, facts in kinds:
        for one in known:
            about = {name: getattr(one.item, name) for name in facts} if one.item else {"problem": one.problem}
            yield {"kind": kind, "name": one.name, "origin": one.origin, **about}
