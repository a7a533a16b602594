"""Formatting of actions as text: tool calls, and short descriptions for summaries."""

from __future__ import annotations

import json
from typing import Any

from webgym_cli.agent.forms.action_forms import WebActions
from webgym_cli.agent.forms.web_actions import BASIC
from webgym_cli.agent.forms.webrl_forms import render_webrl_action
from webgym_cli.records.action import LATER_FIELDS, ActionName, CustomAction, InteractionMode
from webgym_cli.records.webrl import AnyAction, WebRLAction


def render_web_action(action: AnyAction, mode: InteractionMode, actions: WebActions = BASIC) -> str:
    """Format an action as a tool call: the inverse of the parser. Raises `ValueError` for one that the set lacks."""
    return format_tool_call(actions.functions[mode], actions.write(action, mode))


def format_tool_call(name: str, arguments: dict[str, Any]) -> str:
    """Format a function call as JSON between `<tool_call>` tags."""
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    call = call.replace("</", "<\\/")  # equivalent JSON, in which no string can close the tag
    return f"<tool_call>\n{call}\n</tool_call>"


def describe_action(action: AnyAction) -> str:
    """Describe an action briefly, for the summary of older steps; actions that only WebRL has as WebRL's calls."""
    if isinstance(action, CustomAction):
        return f"{action.name}({json.dumps(action.arguments, ensure_ascii=False)})"
    if isinstance(action, WebRLAction):
        return render_webrl_action(action)
    if action.calls:
        return ", ".join(f"{call.name}({json.dumps(call.arguments, ensure_ascii=False)})" for call in action.calls)
    if action.element_id is not None:
        target = f"[{action.element_id}]"
    elif action.coordinate is not None:
        target = f"({action.coordinate[0]:g}, {action.coordinate[1]:g})"
    else:
        target = ""
    text = action.text and json.dumps(action.text, ensure_ascii=False)
    later = ((name, getattr(action, name)) for name in LATER_FIELDS)
    more = (f"{name}={json.dumps(value)}" for name, value in later if value is not None)
    held = f"for {action.seconds:g} s" if action.seconds and action.name is ActionName.CLICK else ""
    details = (target, text, action.direction, action.url, held, *more)
    return " ".join(filter(None, (action.name.value, *details)))
