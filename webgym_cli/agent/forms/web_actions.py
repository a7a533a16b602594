"""Names and arguments of web actions in each action set. The browser engine executes them alike for all sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from webgym_cli.agent.forms.action_forms import Argument, CallForm, WebActions, make_argument, make_flag
from webgym_cli.records.action import NORMALISED, Action, ActionName, InteractionMode
from webgym_cli.util.optional import when

COORDINATES, MARKS = InteractionMode.COORDINATES, InteractionMode.SET_OF_MARKS
# The function's name in each mode.
FUNCTIONS: dict[InteractionMode, str] = {COORDINATES: "computer_use", MARKS: "web_interaction"}

# The argument for the target, in each mode.
_PLACE_BY_MODE = {COORDINATES: "coordinate", MARKS: "element_id"}

_POINT: dict[str, Any] = {
    "type": "array",
    "items": {"type": "number", "minimum": 0, "maximum": NORMALISED},
    "minItems": 2,
    "maxItems": 2,
}
_MARK: dict[str, Any] = {"type": "integer", "minimum": 0}
# Clicks of the larger sets other than the plain one.
_CLICKS: dict[str, dict[str, Any]] = {
    "double_click": {"clicks": 2},
    "triple_click": {"clicks": 3},
    "right_click": {"button": "right"},
    "middle_click": {"button": "middle"},
}
_WORDS = {"type": "array", "items": {"type": "string"}}
_PLACES = {
    "coordinate": make_argument(
        "coordinate", "The point [x, y]; both axes run from 0 to 1000, from the top left corner.", **_POINT
    ),
    "element_id": make_argument("element_id", "The number of a marked element.", **_MARK),
}
_BASIC_ARGUMENTS = {
    **_PLACES,
    "text": make_argument("text", "What to type, or the answer to the task.", type="string"),
    "direction": make_argument("direction", "Where to move by one page.", type="string", enum=["up", "down"]),
    "time": make_argument("seconds", "Seconds.", type="number"),
    "url": make_argument("url", "An address.", type="string"),
}


def _make_basic_forms(place: str) -> dict[str, CallForm]:
    # WebGym's computer_use has no hover.
    hovering = when(place == "element_id", {"hover": CallForm(ActionName.HOVER, place)})
    return {
        "left_click" if place == "coordinate" else "click": CallForm(ActionName.CLICK, place),
        "type": CallForm(ActionName.TYPE, f"{place} text"),
        **hovering,
        "scroll": CallForm(ActionName.SCROLL, "direction"),
        "wait": CallForm(ActionName.WAIT, "time"),
        "go_back": CallForm(ActionName.GO_BACK),
        "navigate": CallForm(ActionName.NAVIGATE, "url"),
        "answer": CallForm(ActionName.ANSWER, "text"),
    }


# The basic actions. The schema must not change: stored trajectories have digests of it.
BASIC = WebActions(
    functions=FUNCTIONS,
    forms={mode: _make_basic_forms(place) for mode, place in _PLACE_BY_MODE.items()},
    arguments=_BASIC_ARGUMENTS,
)


# WebGym's actions: the basic ones, but typing always presses Enter.
WEBGYM = replace(
    BASIC,
    forms={
        mode: {**forms, "type": replace(forms["type"], fields={"submit": True}, ignored=frozenset({"submit"}))}
        for mode, forms in BASIC.forms.items()
    },
    rules="Typing replaces what the field holds and then presses Enter.",
)


def _read_region(value: Any) -> dict[str, Any]:
    if not isinstance(value, list) or len(value) != 4:
        raise ValueError("a region is four numbers")
    return {"coordinate": tuple(value[:2]), "to_coordinate": tuple(value[2:])}


_FULL_ARGUMENTS = {
    **_PLACES,
    "to_coordinate": make_argument("to_coordinate", "The point to drag to.", **_POINT),
    "to_element_id": make_argument("to_element_id", "The element to drag to.", **_MARK),
    "region": Argument(
        {**_POINT, "minItems": 4, "maxItems": 4, "description": "Two corners [x1, y1, x2, y2]."},
        _read_region,
        lambda action: action.coordinate and action.to_coordinate and [*action.coordinate, *action.to_coordinate],
    ),
    "text": make_argument(
        "text",
        "What to type, the option to select, the names of files, a line each, the answer to the task, or why it can't "
        "be done.",
        type="string",
    ),
    "append": make_flag("append", "true: keep what the field holds."),
    "submit": make_flag("submit", "true: then press Enter."),
    "keys": make_argument("keys", 'Keys to press together, such as ["Control", "a"].', **_WORDS),
    "modifiers": make_argument("modifiers", "Keys that are held: Alt, Control, Meta, Shift.", **_WORDS),
    "direction": make_argument("direction", "Where to move.", type="string", enum=["up", "down", "left", "right"]),
    "amount": make_argument(
        "amount", "How far, where 1000 is the height or width of the screen; one page without it.", type="number"
    ),
    "time": _BASIC_ARGUMENTS["time"],
    "url": _BASIC_ARGUMENTS["url"],
    "tab": make_argument("tab", "The number of an open tab.", type="integer", minimum=0),
}


def _make_full_forms(place: str) -> dict[str, CallForm]:
    left, to = ("left_click", "to_coordinate") if place == "coordinate" else ("click", "to_element_id")
    clicks: dict[str, dict[str, Any]] = {left: {}, **_CLICKS}
    focused = {"here": True, "append": True}  # typing without a target inserts at the caret of the focused field
    return {
        **{name: CallForm(ActionName.CLICK, f"{place} modifiers?", fields) for name, fields in clicks.items()},
        "hover": CallForm(ActionName.HOVER, place),
        "drag": CallForm(ActionName.DRAG, f"{place} {to}"),
        "type": CallForm(ActionName.TYPE, f"{place}? text append? submit?", untargeted=focused),
        "key": CallForm(ActionName.KEY, f"{place}? keys", untargeted={}),
        "select_option": CallForm(ActionName.SELECT_OPTION, f"{place} text"),
        "upload_file": CallForm(ActionName.UPLOAD_FILE, f"{place} text"),
        "scroll": CallForm(ActionName.SCROLL, f"{place}? direction amount?", untargeted={}),
        "zoom": CallForm(ActionName.ZOOM, "region" if place == "coordinate" else place),
        "wait": CallForm(ActionName.WAIT, "time"),
        "go_back": CallForm(ActionName.GO_BACK),
        "go_forward": CallForm(ActionName.GO_FORWARD),
        "reload": CallForm(ActionName.RELOAD),
        "navigate": CallForm(ActionName.NAVIGATE, "url"),
        "new_tab": CallForm(ActionName.NEW_TAB, "url?"),
        "switch_tab": CallForm(ActionName.SWITCH_TAB, "tab"),
        "close_tab": CallForm(ActionName.CLOSE_TAB, "tab?"),
        "answer": CallForm(ActionName.ANSWER, "text"),
        "terminate": CallForm(ActionName.TERMINATE, "text?"),
    }


_FULL_TYPING = (
    "Typing replaces what the field holds unless append is true; without a place it goes to the focus. A line "
    "break at the end of the text presses Enter, as submit does. Terminate says that the task can't be done."
)
# All actions of the browser engine.
FULL = WebActions(
    functions=FUNCTIONS,
    forms={mode: _make_full_forms(place) for mode, place in _PLACE_BY_MODE.items()},
    arguments=_FULL_ARGUMENTS,
    rules=_FULL_TYPING,
)

_PLACES_WITHIN = {
    "position": make_argument(
        "position", "The point [x, y] within the element; both axes run from 0 to 1000 of its box.", **_POINT
    ),
    "to_position": make_argument("to_position", "The point within the element to drag to.", **_POINT),
    "path": make_argument(
        "path",
        "Up to 50 points [x, y] to pass on the way, with numbered marks within the element to drag to.",
        **{"type": "array", "items": _POINT, "minItems": 1, "maxItems": 50},
    ),
}
# Actions that may be at a position within an element.
_POSITIONED = frozenset({ActionName.CLICK, ActionName.HOVER, ActionName.DRAG, ActionName.SCROLL})
# Actions of the full set that every set gets.
_SHARED = ("hover", "drag", "key", "upload_file")


def add_actions(actions: WebActions) -> WebActions:
    """Add what a set lacks of hovers, drags, keys and files, long presses, waiting for a text, and where they may be.

    Marked elements take a position within, drags a path, hovers and scrolls a target.
    """
    own, names = actions.arguments, ("to_coordinate", "to_element_id", "keys")
    arguments = {**own, **{name: _FULL_ARGUMENTS[name] for name in names if name not in own}, **_PLACES_WITHIN}
    if not actions.has(ActionName.UPLOAD_FILE):
        words = "What to type or to wait for, the names of files, a line each, or the answer to the task."
        arguments["text"] = make_argument("text", words, type="string")
    forms = {mode: _add_forms(forms, mode) for mode, forms in actions.forms.items()}
    return replace(actions, forms=forms, arguments=arguments)


def _add_forms(forms: Mapping[str, CallForm], mode: InteractionMode) -> dict[str, CallForm]:
    place, scroll, has = _PLACE_BY_MODE[mode], forms["scroll"], {form.name for form in forms.values()}
    if scroll.takes(place) is None:
        scroll = replace(scroll, arguments=f"{place}? {scroll.arguments}", untargeted={})
    full = FULL.forms[mode]
    extended = {
        **forms,
        "scroll": scroll,
        **{called: full[called] for called in _SHARED if full[called].name not in has},
        "long_press": CallForm(ActionName.CLICK, place, {"seconds": 1.0}),
        "wait_for": CallForm(ActionName.WAIT, "text time?", {"seconds": 10.0}),
    }
    return {called: _add_places(form) for called, form in extended.items()}


def _add_places(form: CallForm) -> CallForm:
    """Add to an action its position within an element, and the path of a drag."""
    is_drag, is_marked = form.name is ActionName.DRAG, form.takes("element_id") is not None
    more = when(is_marked and form.name in _POSITIONED, " position?") + when(is_marked and is_drag, " to_position?")
    return replace(form, arguments=f"{form.arguments}{more}{when(is_drag, ' path?')}")


# `FULL`, for dialogs that are left to the policy.
FULL_WITH_DIALOGS = replace(
    FULL,
    forms={
        mode: {
            **forms,
            "accept_dialog": CallForm(ActionName.ACCEPT_DIALOG, "text?"),
            "dismiss_dialog": CallForm(ActionName.DISMISS_DIALOG),
        }
        for mode, forms in FULL.forms.items()
    },
    rules=(
        f"{_FULL_TYPING} While a dialog is open it has to be accepted or dismissed; a prompt is accepted with a text."
    ),
)


def _make_pixels(ways: tuple[str, str]) -> Argument:
    """Make the argument of a scroll: a signed distance. `ways`: direction of positive and of negative distances."""

    def read(value: Any) -> dict[str, Any]:
        if isinstance(value, bool) or not isinstance(value, int | float) or not value:
            raise ValueError("pixels must be a number other than 0")
        return {"direction": ways[value < 0], "amount": float(abs(value))}

    def write(action: Action) -> Any:
        distance = round(action.amount or NORMALISED)
        return {ways[0]: distance, ways[1]: -distance}.get(action.direction or "")

    description = "How far; the screen is 1000 high and wide. Positive is up or right, negative is down or left."
    return Argument({"type": "number", "description": description}, read, write)


_QWEN_CLICKS = ("left_click", "right_click", "middle_click", "double_click", "triple_click")
# Not expressible in Qwen's set: a scroll without a target is at the mouse, and there is no scroll by one page.
_QWEN_SCROLL = frozenset({"here", "amount"})

# Action names and arguments of Qwen3-VL's computer_use. Its points are on a screen of 1000 x 1000.
COMPUTER_USE = WebActions(
    functions={COORDINATES: "computer_use"},
    forms={
        COORDINATES: {
            "key": CallForm(ActionName.KEY, "keys"),
            "type": CallForm(ActionName.TYPE, "text", {"here": True, "append": True}),
            "mouse_move": CallForm(ActionName.HOVER, "coordinate"),
            **{name: CallForm(ActionName.CLICK, "coordinate?", _CLICKS.get(name, {})) for name in _QWEN_CLICKS},
            "left_click_drag": CallForm(
                ActionName.DRAG, "coordinate", {"here": True}, own={"coordinate": _FULL_ARGUMENTS["to_coordinate"]}
            ),
            "scroll": CallForm(ActionName.SCROLL, "coordinate? pixels", ignored=_QWEN_SCROLL),
            "hscroll": CallForm(
                ActionName.SCROLL,
                "coordinate? pixels",
                own={"pixels": _make_pixels(("right", "left"))},
                ignored=_QWEN_SCROLL,
            ),
            "wait": CallForm(ActionName.WAIT, "time"),
            "terminate": CallForm(ActionName.TERMINATE, "status"),
            "answer": CallForm(ActionName.ANSWER, "text"),
        }
    },
    arguments={
        "keys": _FULL_ARGUMENTS["keys"],
        "text": _BASIC_ARGUMENTS["text"],
        "coordinate": _PLACES["coordinate"],
        "pixels": _make_pixels(("up", "down")),
        "time": _BASIC_ARGUMENTS["time"],
        "status": Argument(
            {"type": "string", "enum": ["success", "failure"], "description": "How the task ended."},
            lambda value: when(value != "failure", {"name": ActionName.ANSWER, "text": ""}),
            lambda action: "failure",
        ),
    },
    rules=(
        "Typing goes to what has the focus and keeps what is there: click a field first, and select what it holds to "
        "replace it. Terminate with the status failure says that the task can't be done."
    ),
)
# Keys that answer dialogs, for action sets of other systems, which get no additional actions.
DIALOG_KEYS = (
    "While a dialog is open all keys go to it: Enter accepts it, Escape dismisses it, and what is typed replaces the "
    "text of a prompt."
)
# `COMPUTER_USE`, for dialogs that are left to the policy.
COMPUTER_USE_WITH_DIALOGS = replace(COMPUTER_USE, rules=f"{COMPUTER_USE.rules} {DIALOG_KEYS}")
