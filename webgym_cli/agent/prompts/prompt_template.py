"""Common parts of the prompt versions: the history window, and the formatting of elements, notices and errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from webgym_cli.agent.forms.action_forms import WebActions
from webgym_cli.agent.forms.sanitize import LINE_LIMIT, ROLE_LIMIT, sanitize_line, sanitize_lines, sanitize_page
from webgym_cli.records.action import ActionName, InteractionMode
from webgym_cli.records.trajectory import Element, Observation, PromptSpec, Step
from webgym_cli.util.optional import when
from webgym_cli.util.text import truncate

# Effect of an action by its step's `page_changed`; None: unknown.
EFFECT = {True: "page changed", False: "page unchanged", None: "executed"}
_json = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class HistoryWindow:
    """The history of an episode for a prompt: the last rounds in full, each older round as one line."""

    spec: PromptSpec
    instruction: str
    start_url: str
    past: Sequence[Step]
    current: Observation

    @property
    def first(self) -> int:
        """Index of the first round in full; `len(past)` is the current one."""
        return max(0, len(self.past) - self.spec.history_window)

    @property
    def first_image(self) -> int:
        """Index of the first round that still has its screenshot."""
        limit = self.spec.max_images
        return self.first if limit is None else max(self.first, len(self.past) + 1 - limit)

    def observation(self, index: int) -> Observation:
        """Return the observation of a round."""
        return self.past[index].observation if index < len(self.past) else self.current


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """The texts of a prompt version."""

    system: Callable[[InteractionMode], str]
    head: Callable[[HistoryWindow], str]
    """Returns the beginning of the first user turn: the task and a summary of the rounds before the window."""
    turn: Callable[[HistoryWindow, int], str]
    """Returns the text below a round's screenshot, without the head."""


def format_elements(elements: Sequence[Element]) -> str:
    """Format elements, one per line: number, role, name and, if present, value."""
    # Sanitized all at once: element by element took most of the time of rendering a prompt.
    return sanitize_lines("\n".join(f"[{element.id}] {_format_element(element)}" for element in elements))


def format_listing(observation: Observation, *, is_newest: bool) -> list[str]:
    """Format the page under a heading: its accessibility tree if it is the newest, else the marked elements."""
    if observation.tree and is_newest:
        return ["Page in sight:", sanitize_page(observation.tree)]
    return ["Elements:", format_elements(observation.elements)] if observation.elements else []


def format_element(element: Element) -> str:
    """Format an element without its number."""
    return sanitize_line(_format_element(element), None)


def format_acted_element(step: Step) -> str:
    """Format the element of a step's action without its number; empty if there is none."""
    wanted = step.action and step.action.element_id
    return next((format_element(element) for element in step.observation.elements if element.id == wanted), "")


def _format_element(element: Element) -> str:
    role = truncate(element.role, ROLE_LIMIT).replace("\n", " ")
    value = f" = {_json(truncate(element.value, LINE_LIMIT))}" if element.value else ""
    states = f" ({', '.join(element.states)})".replace("\n", " ") if element.states else ""
    return f"{role} {_json(truncate(element.name, LINE_LIMIT))}{value}{states}"


def format_notices(observation: Observation) -> list[str]:
    """Format the browser's notices, one per line."""
    return [f"Notice: {sanitize_line(text)}." for text in observation.notices]


def format_tabs(observation: Observation, actions: WebActions | None = None) -> list[str]:
    """Format the open tabs under a heading, one per line; empty if only one is open, or none can be switched to."""
    if not observation.tabs or (actions and not actions.has(ActionName.SWITCH_TAB)):
        return []
    lines = [
        f"{number}: {sanitize_line(tab.title or tab.url)}{when(tab.current, ' (shown)')}"
        for number, tab in enumerate(observation.tabs)
    ]
    return ["Open tabs:", *lines]


def format_parse_error(step: Step) -> str:
    """Return the kind of a step's parse error, with its detail if known."""
    return f"{step.parse_error}{f': {sanitize_line(step.parse_detail)}' if step.parse_detail else ''}"


def format_failure(step: Step) -> str:
    """Format a step's parse error or action error for the next turn; empty if there is none."""
    if step.parse_error:
        return f"The last reply was no action: {format_parse_error(step)}."
    return f"The last action failed: {sanitize_line(step.action_error)}." if step.action_error else ""


def quote_text(text: str, limit: int | None = None) -> str:
    """Quote untrusted text as a JSON string on one line, truncated to `limit` characters before quoting."""
    return sanitize_line(_json(truncate(text, limit)), None)
