"""BrowserGym's actions, `click('a51')`, in our words: by coordinates, for its element names are on no picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webgym_cli.imports.calls import Point, box_centre, build_action, normalise_point, read_single_call
from webgym_cli.imports.pickle_stubs import Stub
from webgym_cli.imports.source import to_text
from webgym_cli.records.action import Action, ActionName
from webgym_cli.util.literal_calls import Call

# Seconds that one of our waits takes at most.
MAX_WAIT = 60.0


def convert_action(text: str, elements: Any, width: int, height: int) -> Action | None:
    """Return the action of a call; None where there is no such action here, or its element's place is not known.

    `elements`: their `extra_element_properties`, boxes in the picture's pixels. A scroll by pixels becomes one by a
    page, in its direction.
    """
    if (call := read_single_call(text)) is None:
        return None

    def locate(name: Any) -> Point | None:
        # Their element names are not on the picture, so the place is what our action needs.
        known = elements.get(name) if isinstance(elements, dict) and isinstance(name, str) else None
        box = known.get("bbox") if isinstance(known, dict | Stub) else None
        return box_centre(box, width, height)

    if call.name in ("click", "fill"):
        return _convert_on_element(call, locate(call.get(0, "bid")))
    if call.name == "mouse_click":
        return _convert_click(call, normalise_point(call.get(0, "x"), call.get(1, "y"), width, height), 2)
    convert = _CONVERTERS.get(call.name)
    return convert(call) if convert else None


def _convert_on_element(call: Call, place: Point | None) -> Action | None:
    if call.name == "click":
        return _convert_click(call, place, 1)
    return build_action({"name": ActionName.TYPE, "coordinate": place, "text": call.get(1, "value")})


def _convert_click(call: Call, place: Point | None, button: int) -> Action | None:
    # We have no right click and no modifier keys.
    if call.get(button, "button", "left") != "left" or call.get(button + 1, "modifiers", []):
        return None
    return build_action({"name": ActionName.CLICK, "coordinate": place})


def _convert_scroll(call: Call) -> Action | None:
    down = call.get(1, "delta_y", 0)
    if not isinstance(down, int | float) or not down:
        return None
    return build_action({"name": ActionName.SCROLL, "direction": "down" if down > 0 else "up"})


def _convert_wait(call: Call) -> Action | None:
    milliseconds = call.get(0, "wait_ms", 1000)
    if not isinstance(milliseconds, int | float):
        return None
    return build_action({"name": ActionName.WAIT, "seconds": min(MAX_WAIT, milliseconds / 1000)})


def _convert_answer(call: Call) -> Action | None:
    text = call.get(0, "text", call.get(None, "reason"))
    return build_action({"name": ActionName.ANSWER, "text": to_text(text)})


# Calls that point at nothing -> what they are here.
_CONVERTERS: dict[str, Callable[[Call], Action | None]] = {
    "scroll": _convert_scroll,
    "noop": _convert_wait,
    "goto": lambda call: build_action({"name": ActionName.NAVIGATE, "url": call.get(0, "url")}),
    "go_back": lambda call: build_action({"name": ActionName.GO_BACK}),
    "send_msg_to_user": _convert_answer,
    "report_infeasible": _convert_answer,
}
