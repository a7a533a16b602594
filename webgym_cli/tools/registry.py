"""Registry of tools."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from webgym_cli.errors import UsageError
from webgym_cli.tools.define import Tool
from webgym_cli.util.registry import Registry

TOOLS: Registry[Tool] = Registry(
    noun="tool",
    setting="agent.tools",
    package="webgym_cli.tools",
    item_type=Tool,
    builtin={
        "calculator": "webgym_cli.tools.builtin:calculator",
        "python": "webgym_cli.tools.python:python",
        "answer": "webgym_cli.tools.builtin:answer",
    },
)


def require_record_fields(tools: Iterable[Tool], task: str, fields: Collection[str]) -> None:
    """Raise `UsageError` if a task's record lacks a field that a tool requires."""
    for tool in tools:
        if missing := [name for name, required in tool.fields.items() if required and name not in fields]:
            raise UsageError(
                f"agent.tools: {tool.name} needs {', '.join(missing)}, which the task {task} does not have",
                hint=f"it has {', '.join(fields) or 'no fields'}; give the parameter a default",
            )


def find_tools(names: Sequence[str]) -> tuple[Tool, ...]:
    """Look up tools by name, in order. Raises `UsageError`, also if two of them have the same name."""
    tools: dict[str, Tool] = {}
    for named in names:
        item = TOOLS.find(named)
        if item.name in tools:
            raise UsageError(
                f"agent.tools: two tools are called {item.name}", hint='give one another name: @tool(name="...")'
            )
        tools[item.name] = item
    return tuple(tools.values())
