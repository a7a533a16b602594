"""Separation of a response's reasoning (`<think>`) from the rest."""

from __future__ import annotations

import re
from typing import Any

from webgym_cli.util.optional import when
from webgym_cli.util.text import remove_between

OPEN, CLOSE = "<think>", "</think>"
# As the chat templates of thinking models write it.
_EMPTY_THOUGHT = f"{OPEN}\n\n{CLOSE}\n\n"

_LEADING = re.compile(r"^\s*<think>.*?(?:</think>|\Z)", re.DOTALL)


def strip_reasoning(response: str, *, thinking: bool) -> str:
    """Return the part of a response in which tool calls count.

    A thinking model's chat template may open the reasoning in the prompt, so the response begins within it: all text
    up to the last `</think>` is reasoning, and all of it if there is none. For other models only a leading `<think>`
    block, closed or not, is reasoning.
    """
    return _after_last(response) if thinking else _LEADING.sub("", response, count=1)


def add_empty_thought(action: str, *, thinking: bool | None) -> str:
    """Return an action that no model wrote as a response of the policy: a thinking model acts after its thought only.

    Without one each action of an expert was read as a thought, and its episodes ended with a reward of 0.
    """
    return when(thinking, _EMPTY_THOUGHT) + action


def history_text(response: str, *, thinking: bool) -> str:
    """Return a response without its reasoning, as it appears in the history."""
    return _after_last(response).strip() if thinking else remove_between(response, OPEN, CLOSE)


def join_reasoning(content: str | None, *thoughts: Any, truncated: bool) -> str:
    """Rejoin the reasoning and content into which a server's reasoning parser split a response.

    `thoughts`: values of the fields that may have the reasoning; the first text that is not empty counts. Content that
    begins with it stays as it is. Only line breaks at the seams may differ from the sampled text. `truncated`: the
    model reached its length limit; without content it did so within the reasoning, which then stays open.
    """
    thought = next((one for one in thoughts if isinstance(one, str) and one), "").removeprefix(OPEN).removesuffix(CLOSE)
    head, closed, _ = (content or "").partition(CLOSE)
    if not thought or (closed and head.strip().removeprefix(OPEN).strip() == thought.strip()):
        return content or ""
    start = OPEN if thought.startswith("\n") else f"{OPEN}\n"
    if content is None and truncated:
        return f"{start}{thought}"
    return f"{start}{thought}{CLOSE}{content or ''}"


def _after_last(response: str) -> str:
    _, closed, rest = response.rpartition(CLOSE)
    return rest.partition(OPEN)[0] if closed else ""
