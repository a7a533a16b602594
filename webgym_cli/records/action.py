"""Actions of an agent: one set of names and arguments for all action sets, and tool calls."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field, JsonValue, SerializerFunctionWrapHandler, model_serializer, model_validator

from webgym_cli.records.base import Record
from webgym_cli.records.prompt_version import InteractionMode as InteractionMode
from webgym_cli.records.tool import ToolCall


class ActionName(StrEnum):
    """Kinds of actions. Each action set offers all or some of them under its own names."""

    CLICK = "click"
    TYPE = "type"
    HOVER = "hover"
    SCROLL = "scroll"
    WAIT = "wait"
    GO_BACK = "go_back"
    NAVIGATE = "navigate"
    ANSWER = "answer"
    KEY = "key"
    """Press one or more keys together."""
    SELECT_OPTION = "select_option"
    DRAG = "drag"
    UPLOAD_FILE = "upload_file"
    """Choose files of the task's folder in a file field."""
    GO_FORWARD = "go_forward"
    RELOAD = "reload"
    NEW_TAB = "new_tab"
    SWITCH_TAB = "switch_tab"
    CLOSE_TAB = "close_tab"
    ACCEPT_DIALOG = "accept_dialog"
    DISMISS_DIALOG = "dismiss_dialog"
    ZOOM = "zoom"
    """Enlarge a region of the screenshot."""
    TERMINATE = "terminate"
    """End the episode because the task is infeasible."""
    CALL = "call"
    """Call tools; only in the environment `tools`."""


# Answer of an episode that the policy ended as infeasible, as WebArena's tasks expect it.
NOT_FEASIBLE = "N/A"
# Maximum coordinate on both axes.
NORMALISED = 1000
# Actions that require an element or a point.
POINTING = frozenset(
    {ActionName.CLICK, ActionName.HOVER, ActionName.TYPE, ActionName.SELECT_OPTION, ActionName.UPLOAD_FILE}
)
# Other required arguments by action.
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
# Fields added after the first stored actions; omitted from a line if unset.
LATER_FIELDS = (
    *("button", "clicks", "modifiers", "keys", "here", "append", "submit", "amount"),
    *("to_element_id", "to_coordinate", "tab", "position", "to_position", "path"),
)


class Action(Record):
    """One parsed action with exactly the arguments that its name requires or allows."""

    name: ActionName
    element_id: int | None = Field(default=None, ge=0)
    """The marked element (set_of_marks)."""
    coordinate: tuple[float, float] | None = None
    """The point (x, y), each 0-1000 (coordinates)."""
    text: str | None = None
    """The text to type, or the answer; what `wait` awaits; with tool calls, the rest of the response."""
    direction: Literal["up", "down", "left", "right"] | None = None
    """Scroll direction."""
    seconds: float | None = Field(default=None, ge=0, le=60)
    """Seconds to wait; for a click: how long the button is held."""
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
    position: tuple[float, float] | None = None
    """The point (x, y) within the element, each 0-1000 of its visible box (set_of_marks); None: its click point."""
    to_position: tuple[float, float] | None = None
    """The point within the target element of a drag, likewise."""
    path: tuple[tuple[float, float], ...] | None = Field(default=None, min_length=1, max_length=50)
    """Points that a drag passes in order between its ends; with `to_element_id` within that element, likewise."""

    @model_serializer(mode="wrap")
    def _leave_out_unset(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Lines stored before these fields existed keep their bytes, and thus their digests.
        return {name: value for name, value in dump(self).items() if value is not None or name not in LATER_FIELDS}

    @model_validator(mode="after")
    def _has_its_arguments(self) -> Action:
        for text in (self.text, self.url, *(self.keys or ()), *(self.modifiers or ())):
            if text:
                text.encode()  # an unpaired surrogate raises ValueError: it could not be stored
        if self.name in POINTING and self.element_id is None and self.coordinate is None and not self.here:
            raise ValueError(f"the action {self.name} lacks a place")
        if self.name is ActionName.DRAG and self.to_element_id is None and self.to_coordinate is None:
            raise ValueError("the action drag lacks the place to drag to")
        if (needed := NEEDED.get(self.name)) and getattr(self, needed) is None:
            raise ValueError(f"the action {self.name} lacks an argument: {needed}")
        if (self.position and self.element_id is None) or (self.to_position and self.to_element_id is None):
            raise ValueError("a position is within an element, which the action lacks")
        if self.path and self.name is not ActionName.DRAG:
            raise ValueError(f"only a drag has a path, not {self.name}")
        for point in (self.coordinate, self.to_coordinate, self.position, self.to_position, *(self.path or ())):
            if point and not (0 <= point[0] <= NORMALISED and 0 <= point[1] <= NORMALISED):
                raise ValueError(f"coordinates run from 0 to {NORMALISED}, got {point}")
        return self


class CustomAction(Record):
    """An action of an action set registered by a plugin."""

    name: str = Field(min_length=1)
    """Name in the action set."""
    arguments: dict[str, JsonValue]
    """Arguments by name."""

    @property
    def text(self) -> str | None:
        """The argument `text`: the answer, if the action ends an episode with one."""
        text = self.arguments.get("text")
        return text if isinstance(text, str) else None

    @property
    def element_id(self) -> None:
        """None: only the action set knows which argument names an element."""

    @property
    def coordinate(self) -> None:
        """None, for the same reason."""
