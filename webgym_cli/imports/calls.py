"""Actions that other systems write as function calls, in our words. They are parsed, never evaluated."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from webgym_cli.records.action import NORMALISED, Action

MAX_TEXT = 100_000
"""Characters of a call at most: Python's parser is asked to read it."""
Point = tuple[float, float]
"""A place on the picture, each axis 0-1000."""


@dataclass(frozen=True, slots=True)
class Call:
    """One function call with plain values."""

    name: str
    positional: tuple[Any, ...]
    named: Mapping[str, Any]

    def get(self, position: int | None, name: str, default: Any = None) -> Any:
        """Return an argument, wherever it was given."""
        if position is not None and position < len(self.positional):
            return self.positional[position]
        return self.named.get(name, default)


def read_python_call(text: str) -> Call | None:
    """Return the only call of a text; None where it holds none, several, or values that are not plain."""
    if len(text) > MAX_TEXT:
        return None
    try:
        body = ast.parse(text.strip()).body
        if len(body) != 1 or not isinstance(body[0], ast.Expr) or not isinstance(body[0].value, ast.Call):
            return None
        call = body[0].value
        if not isinstance(call.func, ast.Name) or any(keyword.arg is None for keyword in call.keywords):
            return None
        positional = tuple(ast.literal_eval(argument) for argument in call.args)
        named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return None
    return Call(call.func.id, positional, named)


def build_action(fields: Mapping[str, Any]) -> Action | None:
    """Return the action with these fields; None where it lacks something or something is of another kind."""
    try:
        return Action.model_validate(dict(fields), strict=True)
    except ValueError:
        return None


def box_centre(box: Any, width: int, height: int) -> Point | None:
    """Return the centre of a box (left, top, width, height in the picture's pixels), each axis 0-1000.

    None where it is no box or its centre is outside of the picture.
    """
    if not isinstance(box, list | tuple) or len(box) != 4 or not all(isinstance(side, int | float) for side in box):
        return None
    return normalise_point(box[0] + box[2] / 2, box[1] + box[3] / 2, width, height)


def normalise_point(x: Any, y: Any, width: int, height: int) -> Point | None:
    """Return a point of the picture, each axis 0-1000; None outside of it."""
    if not all(isinstance(axis, int | float) and not isinstance(axis, bool) for axis in (x, y)):
        return None
    if not (0 <= x <= width and 0 <= y <= height) or not width or not height:
        return None
    return round(x * NORMALISED / width, 1), round(y * NORMALISED / height, 1)
