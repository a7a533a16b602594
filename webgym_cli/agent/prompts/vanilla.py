"""The prompt version `vanilla`: one action per reply, after optional reasoning, without memory.

The texts must not change: stored trajectories have digests of them. All rounds of the window list their elements.
"""

from __future__ import annotations

import json
from functools import cache

from webgym_cli.agent.forms.action_forms import WebActions
from webgym_cli.agent.forms.sanitize import LINE_LIMIT, sanitize_line, sanitize_page
from webgym_cli.agent.forms.tools import describe_action
from webgym_cli.agent.prompts.prompt_template import (
    EFFECT,
    HistoryWindow,
    PromptTemplate,
    format_failure,
    format_listing,
    format_notices,
    format_tabs,
)
from webgym_cli.records.action import InteractionMode
from webgym_cli.records.trajectory import Step
from webgym_cli.util.optional import when
from webgym_cli.util.text import truncate


def make_plain_template(actions: WebActions) -> PromptTemplate:
    """Make the template of plain rounds for a set of actions."""

    @cache
    def render_system(mode: InteractionMode) -> str:
        see = (
            "a screenshot of a web page"
            if mode is InteractionMode.COORDINATES
            else "a screenshot of a web page with numbered marks on its elements, and a list of them"
        )
        return (
            f"You operate a web browser to carry out a task. Each turn shows {see}. "
            "Reply with exactly one call of this function:\n"
            f"<tools>\n{json.dumps(actions.build_schema(mode))}\n</tools>\n"
            "Write the call as JSON between tags, after your reasoning if you need any:\n"
            '<tool_call>\n{"name": <function>, "arguments": <object>}\n</tool_call>\n'
            "When the task asks for information, give it with the action answer."
        ) + when(actions.rules, f" {actions.rules}")

    def render_turn(window: HistoryWindow, index: int) -> str:
        tabs = format_tabs(window.observation(index), actions)
        return "\n".join(filter(None, (*tabs, _render_turn(window, index))))

    return PromptTemplate(system=render_system, head=render_plain_head, turn=render_turn)


def render_plain_head(window: HistoryWindow) -> str:
    """Return the task, the start page and one line per step before the window."""
    lines = [f"Task: {sanitize_page(window.instruction)}", f"Start page: {sanitize_line(window.start_url, None)}"]
    if older := window.past[: window.first]:
        lines += ["Earlier steps:", *(_summarize_step(step) for step in older)]
    return "\n".join(lines) + "\n"


def _summarize_step(step: Step) -> str:
    done = describe_action(step.action) if step.action else f"no action ({step.parse_error})"
    title = truncate(step.observation.title, LINE_LIMIT)
    return sanitize_line(f"Step {step.index + 1} on [{title}]: {done} -> {EFFECT[step.page_changed]}", None)


def _render_turn(window: HistoryWindow, index: int) -> str:
    """Return the error of the step before a round, and the round's notices and marked elements."""
    failures = map(format_failure, window.past[max(0, index - 1) : index])
    observation = window.observation(index)
    lines = [*filter(None, failures), *format_notices(observation)]
    lines += format_listing(observation, is_newest=index == len(window.past))
    return "\n".join(lines)


def render_plain_turn(window: HistoryWindow, index: int) -> str:
    """Return a turn of `vanilla` with the text of the observation, for `ui_tars` and action sets of plugins."""
    text = sanitize_page(window.observation(index).html)
    return "\n".join(filter(None, (_render_turn(window, index), text)))
