"""The actions of an agent: one closed vocabulary, which action sets put into words; with tools, calls of them."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field, JsonValue, SerializerFunctionWrapHandler, model_serializer, model_validator

from webgym_cli.records.base import Record
from webgym_cli.records.tool import ToolCall


class InteractionMode(StrEnum):
    """How the policy points at things."""

    COORDINATES = "coordinates"
    """By a point, each axis normalised to 0-1000 (function `computer_use`)."""
    SET_OF_MARKS = "set_of_marks"
    """By the number of a marked element (function `web_interaction`)."""


class ActionName(StrEnum):
    """What can be done. Action sets name these, or some of them, in their own words."""

    CLICK = "click"
    TYPE = "type"
    HOVER = "hover"
    SCROLL = "scroll"
    WAIT = "wait"
    GO_BACK = "go_back"
    NAVIGATE = "navigate"
    ANSWER = "answer"
    KEY = "key"
    """Press keys, several of them together."""
    SELECT_OPTION = "select_option"
    DRAG = "drag"
    UPLOAD_FILE = "upload_file"
    """Give a file field files of the task's folder."""
    GO_FORWARD = "go_forward"
    RELOAD = "reload"
    NEW_TAB = "new_tab"
    SWITCH_TAB = "switch_tab"
    CLOSE_TAB = "close_tab"
    ACCEPT_DIALOG = "accept_dialog"
    DISMISS_DIALOG = "dismiss_dialog"
    ZOOM = "zoom"
    """See a region enlarged."""
    TERMINATE = "terminate"
    """End the episode: the task can't be done."""
    CALL = "call"
    """Call tools, in the environment `tools` only."""


# What can be done in a browser.
WEB_ACTIONS = tuple(name for name in ActionName if name is not ActionName.CALL)
# The answer of a policy that ends its episode because the task can't be done, as WebArena's tasks expect it.
NOT_FEASIBLE = "N/A"
# Coordinates run from 0 to this number on both axes.
NORMALISED = 1000
# The actions that need an element or a point.
POINTING = frozenset(
    {ActionName.CLICK, ActionName.HOVER, ActionName.TYPE, ActionName.SELECT_OPTION, ActionName.UPLOAD_FILE}
)
# What else an action needs.
NEEDED = {
    ActionName.TYPE: "text",
    ActionName.KEY: "keys",
    ActionName.SELECT_OPTION: "text",
    ActionName.UPLOAD_FILE: "text",
    ActionName.SWITCH_TAB: "tab",
    ActionName.SCROLL: "direction",
    ActionName.WAIT: "seconds",
    ActionName.NAVIGATE: "url",
    ActionName.ANSWER: "text",
    ActionName.CALL: "calls",
}
# Fields that came later than the first stored actions: left out of a line where they are not set.
LATER_FIELDS = (
    *("button", "clicks", "modifiers", "keys", "here", "append", "submit", "amount"),
    *("to_element_id", "to_coordinate", "tab"),
)


class Action(Record):
    """One parsed action. Exactly the arguments that its name needs are set."""

    name: ActionName
    element_id: int | None = Field(default=None, ge=0)
    """The marked element (set_of_marks)."""
    coordinate: tuple[float, float] | None = None
    """The point (x, y), each 0-1000 (coordinates)."""
    text: str | None = None
    """The text to type, or the answer; with tool calls, the rest of the response."""
    direction: Literal["up", "down", "left", "right"] | None = None
    """Scroll direction."""
    seconds: float | None = Field(default=None, ge=0, le=60)
    """Seconds to wait."""
    url: str | None = None
    """URL to navigate to."""
    calls: tuple[ToolCall, ...] | None = Field(default=None, min_length=1)
    """Tool calls, executed in parallel."""
    button: Literal["right", "middle"] | None = None
    """Mouse button; None: left."""
    clicks: int | None = Field(default=None, ge=2, le=3)
    """Number of clicks; None: one."""
    modifiers: tuple[str, ...] | None = None
    """Keys held during a click."""
    keys: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=5)
    """Key combination: the last key is pressed while the others are held."""
    here: Literal[True] | None = None
    """Acts at the mouse position; for typing, in the focused field."""
    append: Literal[True] | None = None
    """Type without replacing the field's text."""
    submit: Literal[True] | None = None
    """Press Enter after typing."""
    amount: float | None = Field(default=None, gt=0, le=10 * NORMALISED)
    """Scroll distance in thousandths of the viewport's height or width; None: one page."""
    to_element_id: int | None = Field(default=None, ge=0)
    """Target element of a drag."""
    to_coordinate: tuple[float, float] | None = None
    """Target point of a drag; with `zoom` the opposite corner of the region."""
    tab: int | None = Field(default=None, ge=0)
    """Index of the tab, from 0 in the order of opening."""

    @model_serializer(mode="wrap")
    def _leave_out_unset(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Lines of the store have the bytes that they had before these fields existed.
        return {name: value for name, value in dump(self).items() if value is not None or name not in LATER_FIELDS}

    @model_validator(mode="after")
    def _has_its_arguments(self) -> Action:
        for text in (self.text, self.url):
            if text:
                text.encode()  # half a surrogate pair is a ValueError: it could not be stored
        if self.name in POINTING and self.element_id is None and self.coordinate is None and not self.here:
            raise ValueError(f"the action {self.name} lacks a place")
        if self.name is ActionName.DRAG and self.to_element_id is None and self.to_coordinate is None:
            raise ValueError("the action drag lacks the place to drag to")
        if (needed := NEEDED.get(self.name)) and getattr(self, needed) is None:
            raise ValueError(f"the action {self.name} lacks an argument: {needed}")
        for point in (self.coordinate, self.to_coordinate):
            if point and not (0 <= point[0] <= NORMALISED and 0 <= point[1] <= NORMALISED):
                raise ValueError(f"coordinates run from 0 to {NORMALISED}, got {point}")
        return self


class CustomAction(Record):
    """An action of an action set that a plugin registered."""

    name: str = Field(min_length=1)
    """Name in the action set."""
    arguments: dict[str, JsonValue]
    """Arguments by name."""

    @property
    def text(self) -> str | None:
        """The argument `text`: the answer, of an action that ends an episode with one."""
        text = self.arguments.get("text")
        return text if isinstance(text, str) else None

    @property
    def element_id(self) -> None:
        """Nothing: which element an argument names, only the action set knows."""

    @property
    def coordinate(self) -> None:
        """Nothing, likewise."""
