"""`EpisodeContext`: the data of an episode for its tools and its reward function."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from webgym_cli.util.optional import when


@dataclass(frozen=True, slots=True)
class EpisodeContext:
    """An episode's task, and the state that its tools and its reward function share."""

    id: str = ""
    """The task's id."""
    question: str = ""
    """The task's question."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The fields of the task's record, as reward functions receive them."""
    seed: int = 0
    """The episode's seed."""
    state: dict[str, Any] = field(default_factory=dict)
    """Storage for tools, initially empty."""
    tools: dict[str, Any] = field(default_factory=dict)
    """Instances of class tools by the tool's name, from its first call on."""


def find_context_parameter(function: Callable[..., Any]) -> str:
    """Return the name of the context's parameter: `context`, unless it has another type; empty if there is none."""
    parameter = inspect.signature(function).parameters.get("context")
    if parameter is None or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return ""
    try:
        hint = typing.get_type_hints(function).get("context")
    except (NameError, TypeError):
        hint = parameter.annotation
    return when(hint in (None, EpisodeContext), "context")
