"""The actions of an agent: one closed vocabulary. On the web in both interaction modes; with tools, calls of them."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field, JsonValue, model_validator

from webgym_cli.records.base import Record
from webgym_cli.records.tool import ToolCall


class InteractionMode(StrEnum):
    """How the policy points at things."""

    COORDINATES = "coordinates"
    """By a point, each axis normalised to 0-1000 (function `computer_use`)."""
    SET_OF_MARKS = "set_of_marks"
    """By the number of a marked element (function `web_interaction`)."""


class ActionName(StrEnum):
    """WebGym's actions, under the names of their internal keys."""

    CLICK = "click"
    TYPE = "type"
    HOVER = "hover"
    SCROLL = "scroll"
    WAIT = "wait"
    GO_BACK = "go_back"
    NAVIGATE = "navigate"
    ANSWER = "answer"
    CALL = "call"
    """Call tools, in the environment `tools` only."""


# What can be done in a browser.
WEB_ACTIONS = tuple(name for name in ActionName if name is not ActionName.CALL)
# Coordinates run from 0 to this number on both axes.
NORMALISED = 1000
# The actions that need an element or a point.
POINTING = frozenset({ActionName.CLICK, ActionName.HOVER, ActionName.TYPE})
# What else an action needs.
NEEDED = {
    ActionName.TYPE: "text",
    ActionName.SCROLL: "direction",
    ActionName.WAIT: "seconds",
    ActionName.NAVIGATE: "url",
    ActionName.ANSWER: "text",
    ActionName.CALL: "calls",
}


class Action(Record):
    """One parsed action. Exactly the arguments that its name needs are set."""

    name: ActionName
    element_id: int | None = Field(default=None, ge=0)
    """The marked element (set_of_marks)."""
    coordinate: tuple[float, float] | None = None
    """The point (x, y), each 0-1000 (coordinates)."""
    text: str | None = None
    """What to type, or the answer; beside calls of tools, what else was said."""
    direction: Literal["up", "down"] | None = None
    """Where to scroll, by one page."""
    seconds: float | None = Field(default=None, ge=0, le=60)
    """How long to wait."""
    url: str | None = None
    """Where to navigate."""
    calls: tuple[ToolCall, ...] | None = Field(default=None, min_length=1)
    """The tools to call, side by side."""

    @model_validator(mode="after")
    def _has_its_arguments(self) -> Action:
        for text in (self.text, self.url):
            if text:
                text.encode()  # half a surrogate pair is a ValueError: it could not be stored
        if self.name in POINTING and self.element_id is None and self.coordinate is None:
            raise ValueError(f"the action {self.name} lacks a place")
        if (needed := NEEDED.get(self.name)) and getattr(self, needed) is None:
            raise ValueError(f"the action {self.name} lacks an argument: {needed}")
        if self.coordinate and not (0 <= self.coordinate[0] <= NORMALISED and 0 <= self.coordinate[1] <= NORMALISED):
            raise ValueError(f"coordinates run from 0 to {NORMALISED}, got {self.coordinate}")
        return self


class CustomAction(Record):
    """An action of an action set that a plugin registered."""

    name: str = Field(min_length=1)
    """Its name there."""
    arguments: dict[str, JsonValue]
    """Its arguments, by name."""

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
