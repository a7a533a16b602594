"""Actions of other systems in the form of function calls, which are parsed, never evaluated."""

from __future__ import annotations

import re
from typing import Any

from webgym_cli.records.action import Action, ActionName
from webgym_cli.util.literal_calls import BadCall, Call, Identifier, read_call

# Leading empty lines and comments.
_COMMENTS = re.compile(r"\A(?:[^\S\n]*(?:#[^\n]*)?\n)*")


def read_single_call(text: str) -> Call | None:
    """Return the only call of a text besides comments; None if there is not exactly one, or a value is no literal."""
    code = _COMMENTS.sub("", text, count=1)
    try:
        call = read_call(code, python=True)
    except BadCall:
        return None
    values = (*call.positional, *call.named.values())
    if _COMMENTS.sub("", f"{code[call.end :]}\n", count=1).strip() or any(isinstance(v, Identifier) for v in values):
        return None
    return call


def name_arguments(call: Call) -> dict[str, Any]:
    """Return the arguments of a call by their names, those without one as `argument_0` and so on."""
    return {f"argument_{place}": value for place, value in enumerate(call.positional)} | call.named


def build_action(name: ActionName, **fields: Any) -> Action | None:
    """Build an action from its fields; None if a field is missing or invalid."""
    try:
        return Action.model_validate({"name": name, **fields}, strict=True)
    except ValueError:
        return None
