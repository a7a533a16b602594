"""Actions of other systems in the form of function calls, which are parsed, never evaluated."""

from __future__ import annotations

import re
from typing import Any

from webgym_cli.records.action import NORMALISED, Action, ActionName
from webgym_cli.util.literal_calls import BadCall, Call, Identifier, read_call

# Leading empty lines and comments.
_COMMENTS = re.compile(r"\A(?:[^\S\n]*(?:#[^\n]*)?\n)*")
# A point on the screenshot, each axis 0-1000.
Point = tuple[float, float]


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


def box_centre(box: Any, width: int, height: int) -> Point | None:
    """Return the centre of a box (left, top, width, height in pixels of the screenshot), each axis 0-1000.

    None if it is no box or its centre is outside of the screenshot.
    """
    if not isinstance(box, list | tuple) or len(box) != 4 or not all(isinstance(side, int | float) for side in box):
        return None
    return normalise_point(box[0] + box[2] / 2, box[1] + box[3] / 2, width, height)


def normalise_point(x: Any, y: Any, width: int, height: int) -> Point | None:
    """Normalise a point in pixels of the screenshot, each axis to 0-1000; None outside of the screenshot."""
    if not all(isinstance(axis, int | float) and not isinstance(axis, bool) for axis in (x, y)):
        return None
    if not (0 <= x <= width and 0 <= y <= height) or not width or not height:
        return None
    return round(x * NORMALISED / width, 1), round(y * NORMALISED / height, 1)
