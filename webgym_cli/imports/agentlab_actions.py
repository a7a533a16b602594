"""Conversion of BrowserGym's actions, such as `click('a51')`, to coordinates: screenshots don't show its bids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webgym_cli.imports.calls import Point, box_centre, build_action, normalise_point, read_single_call
from webgym_cli.imports.pickle_stubs import Stub
from webgym_cli.imports.source import to_text
from webgym_cli.records.action import NORMALISED, Action, ActionName
from webgym_cli.util.literal_calls import Call

# Maximum duration of a wait action, in seconds.
MAX_WAIT = 60.0


def convert_action(text: str, elements: Any, width: int, height: int) -> Action | None:
    """Convert a call to an action; None if it has no counterpart or its element's position is unknown.

    `elements`: BrowserGym's `extra_element_properties`, with boxes in pixels of the screenshot.
    """
    if (call := read_single_call(text)) is None:
        return None

    def locate(name: Any) -> Point | None:
        known = elements.get(name) if isinstance(elements, dict) and isinstance(name, str) else None
        box = known.get("bbox") if isinstance(known, dict | Stub) else None
        return box_centre(box, width, height)

    def locate_point(first: int, x: str = "x", y: str = "y") -> Point | None:
        return normalise_point(call.get(first, x), call.get(first + 1, y), width, height)

    if call.name == "scroll":
        return _convert_scroll(call, width, height)
    if call.name == "drag_and_drop":
        return _build(ActionName.DRAG, locate(call.get(0, "from_bid")), to_coordinate=locate(call.get(1, "to_bid")))
    if call.name == "mouse_drag_and_drop":
        start, end = locate_point(0, "from_x", "from_y"), locate_point(2, "to_x", "to_y")
        return _build(ActionName.DRAG, start, to_coordinate=end)
    if convert := _ON_ELEMENTS.get(call.name):
        return convert(call, locate(call.get(0, "bid")), 1)
    if convert := _AT_POINTS.get(call.name):
        return convert(call, locate_point(0), 2)
    without_place = _CONVERTERS.get(call.name)
    return without_place(call) if without_place else None


def _build(name: ActionName, place: Point | None, **fields: Any) -> Action | None:
    """Build an action at a point; None without a point."""
    return build_action(name, coordinate=place, **fields) if place else None


def _convert_click(call: Call, place: Point | None, rest: int, clicks: int | None = None) -> Action | None:
    button, modifiers = call.get(rest, "button", "left"), call.get(rest + 1, "modifiers", [])
    if not isinstance(modifiers, list):
        return None
    # "ControlOrMeta" is resolved to Control by Playwright on Linux.
    keys = tuple("Control" if key == "ControlOrMeta" else key for key in modifiers)
    pressed = None if button == "left" else button
    return _build(ActionName.CLICK, place, clicks=clicks, button=pressed, modifiers=keys or None)


def _convert_text(name: ActionName, parameter: str) -> Callable[[Call, Point | None, int], Action | None]:
    """Return the converter of an action with a text, or a list of one text, after its target."""

    def convert(call: Call, place: Point | None, rest: int) -> Action | None:
        value = call.get(rest, parameter)
        return _build(name, place, text=value[0] if isinstance(value, list) and len(value) == 1 else value)

    return convert


def _convert_scroll(call: Call, width: int, height: int) -> Action | None:
    """Convert a scroll by pixels of the screenshot; None unless it is along exactly one axis."""
    across, down = call.get(0, "delta_x", 0), call.get(1, "delta_y", 0)
    if not all(isinstance(way, int | float) for way in (across, down)) or bool(across) == bool(down):
        return None
    direction = ("down" if down > 0 else "up") if down else "right" if across > 0 else "left"
    amount = round(abs(down / height if down else across / width) * NORMALISED, 1)
    return build_action(ActionName.SCROLL, direction=direction, amount=amount)


def _convert_wait(call: Call) -> Action | None:
    milliseconds = call.get(0, "wait_ms", 1000)
    if not isinstance(milliseconds, int | float):
        return None
    return build_action(ActionName.WAIT, seconds=min(MAX_WAIT, milliseconds / 1000))


def _convert_typing(call: Call) -> Action | None:
    return build_action(ActionName.TYPE, here=True, append=True, text=call.get(0, "text"))


# Converters of calls on an element, or at a point, given the point and the position of their other arguments.
_ON_ELEMENTS: dict[str, Callable[[Call, Point | None, int], Action | None]] = {
    "click": _convert_click,
    "dblclick": lambda call, place, rest: _convert_click(call, place, rest, 2),
    "hover": lambda call, place, rest: _build(ActionName.HOVER, place),
    "fill": _convert_text(ActionName.TYPE, "value"),
    "clear": lambda call, place, rest: _build(ActionName.TYPE, place, text=""),
    "press": lambda call, place, rest: _build(ActionName.KEY, place, keys=(call.get(rest, "key_comb"),)),
    "select_option": _convert_text(ActionName.SELECT_OPTION, "options"),
    "upload_file": _convert_text(ActionName.UPLOAD_FILE, "file"),
}
_AT_POINTS: dict[str, Callable[[Call, Point | None, int], Action | None]] = {
    "mouse_click": _convert_click,
    "mouse_dblclick": lambda call, place, rest: _convert_click(call, place, rest, 2),
    "mouse_move": lambda call, place, rest: _build(ActionName.HOVER, place),
    "mouse_upload_file": _convert_text(ActionName.UPLOAD_FILE, "file"),
}
# Converters of calls without a target.
_CONVERTERS: dict[str, Callable[[Call], Action | None]] = {
    "noop": _convert_wait,
    "goto": lambda call: build_action(ActionName.NAVIGATE, url=call.get(0, "url")),
    "go_back": lambda call: build_action(ActionName.GO_BACK),
    "go_forward": lambda call: build_action(ActionName.GO_FORWARD),
    "new_tab": lambda call: build_action(ActionName.NEW_TAB),
    "tab_close": lambda call: build_action(ActionName.CLOSE_TAB),
    "tab_focus": lambda call: build_action(ActionName.SWITCH_TAB, tab=call.get(0, "index")),
    "keyboard_press": lambda call: build_action(ActionName.KEY, keys=(call.get(0, "key"),)),
    "keyboard_type": _convert_typing,
    "keyboard_insert_text": _convert_typing,
    "send_msg_to_user": lambda call: build_action(ActionName.ANSWER, text=to_text(call.get(0, "text"))),
    "report_infeasible": lambda call: build_action(
        ActionName.TERMINATE, text=to_text(call.get(0, "reason", call.get(None, "text")))
    ),
}
