"""Actions of WebRL's action language without an equivalent in `records.action`."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field, model_validator

from webgym_cli.records.action import Action, ActionName, CustomAction
from webgym_cli.records.base import Record


class WebRLActionName(StrEnum):
    """Names of these actions as in WebRL's `do`, and `quote`."""

    SEARCH = "Search"
    """Type and press Enter."""
    SELECT = "Select Dropdown Option"
    """Choose the option of a list whose text contains a text."""
    PRESS_ENTER = "Press Enter"
    GO_FORWARD = "Go Forward"
    """Go forward in history."""
    RIGHT_CLICK = "Right Click"
    SWITCH_TAB = "Switch Tab"
    QUOTE = "quote"
    """Remember a text; the page does not change."""


# Actions that require an element.
POINTING = frozenset({WebRLActionName.SEARCH, WebRLActionName.SELECT, WebRLActionName.RIGHT_CLICK})
# Actions that require a text.
SAYING = frozenset({WebRLActionName.SEARCH, WebRLActionName.SELECT, WebRLActionName.QUOTE})


class WebRLOptions(Record):
    """Options of a prompt of WebRL's action sets (`PromptSpec.options`)."""

    system_prompt: str = ""
    """The text that describes the actions; empty: webgym's own text."""
    explained: bool = True
    """Whether a system message describes the actions."""
    lenient: bool = False
    """Whether calls are parsed leniently."""
    max_characters: int | None = Field(default=None, ge=1)
    """Maximum number of characters of history and page together; the page is truncated."""


class WebRLAction(Record):
    """One parsed action with exactly the arguments that its name requires."""

    name: WebRLActionName
    element_id: int | None = Field(default=None, ge=0)
    """The element's number on the page."""
    text: str | None = None
    """The text to search for, to select, or to note."""
    tab: int | None = Field(default=None, ge=0)
    """Index of the tab to show, from 0 in the order of opening."""

    @model_validator(mode="after")
    def _has_its_arguments(self) -> WebRLAction:
        if self.text:
            self.text.encode()  # an unpaired surrogate raises ValueError: it could not be stored
        needed = {
            "element_id": self.name in POINTING,
            "text": self.name in SAYING,
            "tab": self.name is WebRLActionName.SWITCH_TAB,
        }
        for argument, wanted in needed.items():
            if (getattr(self, argument) is not None) != wanted:
                raise ValueError(f"the action {self.name} {'lacks the' if wanted else 'has no'} argument {argument}")
        return self

    def as_action(self) -> Action:
        """Return the equivalent browser action; `quote` becomes a wait of 0 seconds."""
        name, fields = _DONE_BY[self.name]
        values = {"element_id": self.element_id, "text": self.text, "tab": self.tab}
        return Action.model_validate(
            {"name": name, **{key: value for key, value in values.items() if value is not None}, **fields}
        )


# Equivalent browser actions, with the arguments that each name implies.
_DONE_BY: dict[WebRLActionName, tuple[ActionName, dict[str, Any]]] = {
    WebRLActionName.SEARCH: (ActionName.TYPE, {"submit": True}),
    WebRLActionName.SELECT: (ActionName.SELECT_OPTION, {}),
    WebRLActionName.PRESS_ENTER: (ActionName.KEY, {"keys": ("Enter",)}),
    WebRLActionName.GO_FORWARD: (ActionName.GO_FORWARD, {}),
    WebRLActionName.RIGHT_CLICK: (ActionName.CLICK, {"button": "right"}),
    WebRLActionName.SWITCH_TAB: (ActionName.SWITCH_TAB, {}),
    # the history already contains the quoted text
    WebRLActionName.QUOTE: (ActionName.WAIT, {"text": None, "seconds": 0.0}),
}


def find_webrl_name(action: Action) -> ActionName | WebRLActionName:
    """Return WebRL's name of a browser action by which one of its actions is done; otherwise the action's own."""
    for name, (done_by, fields) in _DONE_BY.items():
        is_same = action.name is done_by and all(getattr(action, field) == value for field, value in fields.items())
        if is_same and name is not WebRLActionName.QUOTE:
            return name
    return action.name


# Action of a step. The names of the first two are disjoint; only the last has `arguments`.
AnyAction = Action | WebRLAction | CustomAction
