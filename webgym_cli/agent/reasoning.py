"""Where a response's thought ends and what is meant to be done begins."""

from __future__ import annotations

import re

OPEN, CLOSE = "<think>", "</think>"

_LEADING = re.compile(r"^\s*<think>.*?(?:</think>|\Z)", re.DOTALL)
_CLOSED = re.compile(r"<think>.*?</think>\s*", re.DOTALL)


def strip_reasoning(response: str, *, thinking: bool) -> str:
    """Return the part of a response in which a tool call counts.

    A thinking model's chat template may open the thought in the prompt, so its response begins inside of it: all up
    to the last `</think>` is thought, and without one there is nothing else. Of other models only a leading `<think>`
    block, closed or not, is thought.
    """
    return _after_last(response) if thinking else _LEADING.sub("", response, count=1)


def history_text(response: str, *, thinking: bool) -> str:
    """Return what of a response stands in the history: all but its thoughts."""
    return _after_last(response).strip() if thinking else _CLOSED.sub("", response)


def join_reasoning(thought: str, content: str | None, *, truncated: bool) -> str:
    """Return the response of which a server's reasoning parser made two parts.

    Only line ends at the seams may differ from what was sampled. `truncated`: the model met its length limit; without
    content it did so within its thought, which then stays open.
    """
    start = OPEN if thought.startswith("\n") else f"{OPEN}\n"
    if content is None and truncated:
        return f"{start}{thought}"
    return f"{start}{thought}{CLOSE}{content or ''}"


def _after_last(response: str) -> str:
    _, closed, rest = response.rpartition(CLOSE)
    return rest.partition(OPEN)[0] if closed else ""
