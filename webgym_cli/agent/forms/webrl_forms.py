"""WebRL's names of actions, and the formatting of actions in its language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from webgym_cli.records.action import Action, ActionName, CustomAction
from webgym_cli.records.webrl import AnyAction, WebRLActionName, find_webrl_name
from webgym_cli.util.literal_calls import quote_string

WAIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ActionForm:
    """An action of `do`: its name in webgym and its arguments."""

    name: ActionName | WebRLActionName
    element: bool = False
    argument: Literal["text", "seconds", "tab"] | None = None
    """Field of the action that `argument` sets."""
    direction: Literal["up", "down"] | None = None

    @property
    def arguments(self) -> set[str]:
        """Names of its arguments in a call."""
        return {name for name, taken in (("argument", self.argument), ("element", self.element)) if taken}


# The actions of `do`, by their names in WebRL.
FORMS: dict[str, ActionForm] = {
    "Click": ActionForm(ActionName.CLICK, element=True),
    "Right Click": ActionForm(WebRLActionName.RIGHT_CLICK, element=True),
    "Type": ActionForm(ActionName.TYPE, element=True, argument="text"),
    "Search": ActionForm(WebRLActionName.SEARCH, element=True, argument="text"),
    "Hover": ActionForm(ActionName.HOVER, element=True),
    "Select Dropdown Option": ActionForm(WebRLActionName.SELECT, element=True, argument="text"),
    "Scroll Up": ActionForm(ActionName.SCROLL, direction="up"),
    "Scroll Down": ActionForm(ActionName.SCROLL, direction="down"),
    "Press Enter": ActionForm(WebRLActionName.PRESS_ENTER),
    "Go Forward": ActionForm(WebRLActionName.GO_FORWARD),
    "Go Backward": ActionForm(ActionName.GO_BACK),
    "Switch Tab": ActionForm(WebRLActionName.SWITCH_TAB, argument="tab"),
    "Wait": ActionForm(ActionName.WAIT, argument="seconds"),
}
_CALLED: dict[tuple[ActionName | WebRLActionName, str | None], str] = {
    (form.name, form.direction): called for called, form in FORMS.items()
}


def render_webrl_action(action: AnyAction) -> str:
    """Format an action as a call that the parser reads back. Raises `ValueError` for an action that WebRL lacks."""
    if isinstance(action, CustomAction):
        raise ValueError(f"WebRL has no such action: {action}")
    if action.name is ActionName.ANSWER:
        return f"exit(message={quote_string(action.text or '')})"
    if action.name is WebRLActionName.QUOTE:
        return f"quote(content={quote_string(action.text or '')})"
    direction, name = (action.direction, find_webrl_name(action)) if isinstance(action, Action) else (None, action.name)
    called = _CALLED.get((name, direction))
    if called is None or (FORMS[called].element and action.element_id is None):
        raise ValueError(f"WebRL has no such action: {action}")
    form, parts = FORMS[called], [f"action={quote_string(called)}"]
    argument = getattr(action, form.argument) if form.argument else None
    if argument is not None and not (form.argument == "seconds" and argument == WAIT_SECONDS):
        parts.append(f"argument={quote_string(str(argument))}")
    if form.element:
        parts.append(f"element={quote_string(str(action.element_id))}")
    return f"do({', '.join(parts)})"
