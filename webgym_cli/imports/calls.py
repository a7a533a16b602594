"""Actions of other systems in the form of function calls, which are parsed, never evaluated.

Those of WebRL, `do(action="Click", element="3")`, and of VisualAgentBench, `click [3]`, are converted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from webgym_cli.imports.source import to_text
from webgym_cli.records.action import NORMALISED, Action, ActionName
from webgym_cli.util.literal_calls import BadCall, Call, Identifier, read_call

# Leading empty lines and comments.
_COMMENTS = re.compile(r"\A(?:[^\S\n]*(?:#[^\n]*)?\n)*")
# A point on the screenshot, each axis 0-1000.
Point = tuple[float, float]
_LINE = re.compile(
    r"(?P<name>click|hover|type|scroll|goto|go_back|stop)"
    r"(?: \[(?P<first>.*?)\](?: \[(?P<text>.*?)\])?(?: where \[(?P=first)\].*)?)?",
    re.DOTALL,
)


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


def convert_call(response: str, page: str, width: int, height: int) -> Action | None:
    """Convert the action of a WebRL response; None if it has no counterpart.

    `page`: the simplified HTML of the observation, which has the elements' boxes in pixels of the viewport.
    """
    if (call := read_single_call(response)) is None:
        return None
    if call.name == "exit":
        return build_action(ActionName.ANSWER, text=to_text(call.get(None, "message")))
    convert = _CONVERTERS.get(to_text(call.get(None, "action")).lower())
    if call.name != "do" or convert is None:
        return None
    return convert(call, _locate(page, call.get(None, "element"), width, height))


def _locate(page: str, element: object, width: int, height: int) -> Point | None:
    """Return the centre of the element with this number, each axis 0-1000; None if it has no box in the screenshot."""
    # The number becomes part of a regular expression, so only digits are accepted.
    if not str(element).isdecimal():
        return None
    box = re.search(rf'<[\w-]+ id="{element}"[^>]*?\bdata-bbox="([^"]*)"', page)
    try:
        left, top, wide, high = map(float, box[1].split(",") if box else ())
    except ValueError:
        return None
    x, y = left + wide / 2, top + high / 2
    if not (0 <= x <= width and 0 <= y <= height) or not width or not height:
        return None
    return round(x * NORMALISED / width, 1), round(y * NORMALISED / height, 1)


# Converters of `do` by action. Search (which also presses Enter) and hover have no counterpart.
_CONVERTERS: dict[str, Callable[[Call, Point | None], Action | None]] = {
    "click": lambda call, at: build_action(ActionName.CLICK, coordinate=at),
    "type": lambda call, at: build_action(ActionName.TYPE, coordinate=at, text=call.get(None, "argument")),
    "scroll up": lambda call, at: build_action(ActionName.SCROLL, direction="up"),
    "scroll down": lambda call, at: build_action(ActionName.SCROLL, direction="down"),
    "go backward": lambda call, at: build_action(ActionName.GO_BACK),
}


def convert_line(line: str) -> Action | None:
    """Convert a line like `type [3] [red] where [3] is a box` to an action; None if it has no counterpart."""
    if (match := _LINE.fullmatch(line.strip())) is None:
        return None
    name, first, text = match["name"], match["first"], match["text"]
    # int() of a very long text takes quadratic time.
    number = int(first) if first and first.isdecimal() and len(first) < 10 else None
    convert: dict[str, dict[str, Any]] = {
        "click": {"name": ActionName.CLICK, "element_id": number},
        "hover": {"name": ActionName.HOVER, "element_id": number},
        "type": {"name": ActionName.TYPE, "element_id": number, "text": text},
        # VisualAgentBench scrolls up and down only.
        "scroll": {"name": ActionName.SCROLL, "direction": first if first in ("up", "down") else None},
        "goto": {"name": ActionName.NAVIGATE, "url": first},
        "go_back": {"name": ActionName.GO_BACK},
        "stop": {"name": ActionName.ANSWER, "text": first},
    }
    return build_action(**convert[name])
