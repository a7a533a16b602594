"""The actions of WebRL's language under the names that it has for them, and how one is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.webrl import AnyAction, WebRLActionName
from webgym_cli.util.literal_calls import quote_string

WAIT_SECONDS = 5.0
"""How long a wait lasts that does not say how long."""


@dataclass(frozen=True, slots=True)
class Form:
    """An action of `do`: what it is here, and which arguments it has."""

    name: ActionName | WebRLActionName
    element: bool = False
    argument: Literal["text", "seconds", "tab"] | None = None
    """The field that its argument is."""
    direction: Literal["up", "down"] | None = None


FORMS: dict[str, Form] = {
    "Click": Form(ActionName.CLICK, element=True),
    "Right Click": Form(WebRLActionName.RIGHT_CLICK, element=True),
    "Type": Form(ActionName.TYPE, element=True, argument="text"),
    "Search": Form(WebRLActionName.SEARCH, element=True, argument="text"),
    "Hover": Form(ActionName.HOVER, element=True),
    "Select Dropdown Option": Form(WebRLActionName.SELECT, element=True, argument="text"),
    "Scroll Up": Form(ActionName.SCROLL, direction="up"),
    "Scroll Down": Form(ActionName.SCROLL, direction="down"),
    "Press Enter": Form(WebRLActionName.PRESS_ENTER),
    "Go Forward": Form(WebRLActionName.GO_FORWARD),
    "Go Backward": Form(ActionName.GO_BACK),
    "Switch Tab": Form(WebRLActionName.SWITCH_TAB, argument="tab"),
    "Wait": Form(ActionName.WAIT, argument="seconds"),
}
"""What `do` can be asked for, by the names that it has for it."""
_CALLED = {(form.name, form.direction): called for called, form in FORMS.items()}


def render(action: AnyAction) -> str:
    """Return an action as a call that the parser reads back. Raises `ValueError` for one that WebRL can't say."""
    if action.name is ActionName.ANSWER:
        return f"exit(message={quote_string(action.text or '')})"
    if action.name is WebRLActionName.QUOTE:
        return f"quote(content={quote_string(action.text or '')})"
    direction = action.direction if isinstance(action, Action) else None
    called = _CALLED.get((action.name, direction))
    if called is None or (FORMS[called].element and action.element_id is None):
        raise ValueError(f"WebRL has no such action: {action}")
    form, parts = FORMS[called], [f"action={quote_string(called)}"]
    argument = getattr(action, form.argument) if form.argument else None
    if argument is not None and not (form.argument == "seconds" and argument == WAIT_SECONDS):
        parts.append(f"argument={quote_string(str(argument))}")
    if form.element:
        parts.append(f"element={quote_string(str(action.element_id))}")
    return f"do({', '.join(parts)})"
