"""Lenient parser of the sections in replies to the prompt `complete`, for viewers and the next prompt."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from webgym_cli.agent.forms.reasoning import CLOSE, OPEN
from webgym_cli.util.text import replace_surrogates

_HEADING = re.compile(
    r"^[ \t>#*\-\d.]*\b(memory|progress|intention|action)\b\**[ \t]*:\**", re.IGNORECASE | re.MULTILINE
)
_CALL = re.compile(r"<tool_call>.*", re.DOTALL)
_FENCE = re.compile(r"\A```\w*")
# Maximum number of cached responses: each is parsed again for every later prompt of its episode.
_CACHED = 512


@dataclass(frozen=True, slots=True)
class MemorySections:
    """Sections before the tool call. Missing or unreadable ones are empty; text that is not JSON is kept as text."""

    memory: tuple[str, ...] = ()
    """The facts noted so far, oldest first."""
    progress: Mapping[str, str] = field(default_factory=dict)
    """Sub-goal -> its state."""
    intention: str = ""
    """The sub-goal that the action serves."""
    action: str = ""
    """The action in a sentence."""


@lru_cache(maxsize=_CACHED)
def read_sections(response: str) -> MemorySections:
    """Parse the sections of a response, without its reasoning and tool call. Never raises."""
    sections = _split_sections(response)
    return MemorySections(
        memory=_read_memory(sections.get("memory", "")),
        progress=_read_progress(sections.get("progress", "")),
        intention=_to_text(sections.get("intention", "")),
        action=sections.get("action", ""),
    )


def _split_sections(response: str) -> dict[str, str]:
    """Return the text under each heading; of repeated headings the first counts."""
    text = _CALL.sub("", response.rpartition(CLOSE)[2].partition(OPEN)[0])
    sections: dict[str, str] = {}
    headings = list(_HEADING.finditer(text))
    for heading, following in zip_longest(headings, headings[1:]):
        end = following.start() if following else len(text)
        sections.setdefault(heading[1].lower(), text[heading.end() : end].strip())
    return sections


def _read_memory(text: str) -> tuple[str, ...]:
    value = _read_json(text)
    if isinstance(value, dict):
        return tuple(f"{_to_text(key)}: {_to_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return tuple(_to_text(item) for item in value)
    return tuple(line for line in (_to_text(line) for line in text.splitlines()) if line)


def _read_progress(text: str) -> dict[str, str]:
    value = _read_json(text)
    if isinstance(value, dict):
        return {_to_text(key): _to_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return {_to_text(item): "" for item in value}
    goals = (line.strip(" \t-*").rpartition(":") for line in text.splitlines() if line.strip())
    return {(goal or state).strip(): state.strip() if goal else "" for goal, _, state in goals}


def _read_json(text: str) -> Any:
    try:
        return json.loads(_FENCE.sub("", text.strip()).removesuffix("```"))
    except (ValueError, RecursionError):
        return None


def _to_text(value: Any) -> str:
    """Format a value for viewers: a string without its quotes, anything else as JSON."""
    if not isinstance(value, str):
        try:
            return replace_surrogates(json.dumps(value, ensure_ascii=False))
        except RecursionError:
            return "…"
    text = replace_surrogates(value.strip())
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'`"
    return text[1:-1] if quoted else text
