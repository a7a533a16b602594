"""`EpisodeContext`: the episode as its tools and its reward function see it."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class EpisodeContext:
    """An episode's task, and the state that its tools and its reward function share."""

    id: str = ""
    """The task's id."""
    question: str = ""
    """What was asked."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The fields of the task's record, as reward functions get them."""
    seed: int = 0
    """The episode's seed."""
    state: dict[str, Any] = field(default_factory=dict)
    """Empty at first; for tools to keep what they like."""
    tools: dict[str, Any] = field(default_factory=dict)
    """The instances of tools that are classes, by the tool's name, from the first call on."""


def find_context_parameter(function: Callable[..., Any]) -> str:
    """Return the parameter that takes the context: `context`, unless of another type; empty where there is none."""
    parameter = inspect.signature(function).parameters.get("context")
    if parameter is None or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return ""
    try:
        hint = typing.get_type_hints(function).get("context")
    except (NameError, TypeError):
        hint = parameter.annotation
    return "context" if hint in (None, EpisodeContext) else ""
