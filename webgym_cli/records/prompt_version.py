"""Prompt versions and interaction modes, separate from `records.trajectory` so that settings avoid importing it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator


class InteractionMode(StrEnum):
    """How the policy refers to elements of a page."""

    COORDINATES = "coordinates"
    """By a point, each axis normalised to 0-1000 (function `computer_use`)."""
    SET_OF_MARKS = "set_of_marks"
    """By the number of a marked element (function `web_interaction`)."""


class PromptVersion(StrEnum):
    """Prompt version: how the policy is asked to write its response."""

    VANILLA = "vanilla"
    """The action in a sentence, then its call."""
    COMPLETE = "complete"
    """WebGym's memory prompt: memory, progress, intention, action, then the call."""
    WEBRL = "webrl"
    """WebRL's rounds: its action language, and the page as text."""
    WEBRL_RELEASED = "webrl_released"
    """The same as WebRL's published models were trained on: one raw text, and the page in its form."""


# A built-in prompt version, or the name of an action set registered by a plugin.
PromptName = Annotated[
    PromptVersion | str, BeforeValidator(lambda value: next((one for one in PromptVersion if one == value), value))
]
