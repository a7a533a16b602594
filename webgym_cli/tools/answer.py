"""The tool by which a policy gives its answer."""

from __future__ import annotations

from webgym_cli.tools.define import tool


@tool(terminal=True)
def answer(text: str) -> str:
    """Give the final answer. The task ends with it.

    Args:
        text: The answer alone, without an explanation.
    """
    return text
