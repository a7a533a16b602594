"""The calculator, and the tool by which a policy gives its answer."""

from __future__ import annotations

from webgym_cli.tools.arithmetic import evaluate, format_number
from webgym_cli.tools.define import tool


@tool(terminal=True)
def answer(text: str) -> str:
    """Give the final answer. The task ends with it.

    Args:
        text: The answer alone, without an explanation.
    """
    return text


@tool(timeout=5)
def calculator(expression: str) -> str:
    """Calculate an arithmetic expression, exactly where that is possible.

    Args:
        expression: For example 12*50/60, (1+2)^3, 15% * 80, sqrt(2), 10 % 3, 5!, round(2.345, 2) or max(1, 2).
    """
    return format_number(evaluate(expression))
