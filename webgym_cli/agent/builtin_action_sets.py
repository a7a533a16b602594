"""The built-in action sets."""

from __future__ import annotations

from collections.abc import Sequence

from webgym_cli.agent import memory_prompt, tool_calls, vanilla, webrl_prompt
from webgym_cli.agent.action_sets import ActionSet, Conversation
from webgym_cli.agent.memory_sections import MemorySections, format_sections
from webgym_cli.agent.parse import ParseError, parse_web_action
from webgym_cli.agent.sanitize import sanitize_line
from webgym_cli.agent.tools import describe_action, render_web_action
from webgym_cli.agent.webrl_actions import parse_webrl_action
from webgym_cli.agent.webrl_forms import render_webrl_action
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.trajectory import Observation, PromptSpec, Step
from webgym_cli.records.webrl import AnyAction


def _parse_web(response: str, spec: PromptSpec, *, truncated: bool, max_calls: int) -> AnyAction | ParseError:
    return parse_web_action(response, spec.interaction_mode, truncated=truncated, thinking=spec.thinking)


def _parse_webrl(response: str, spec: PromptSpec, *, truncated: bool, max_calls: int) -> AnyAction | ParseError:
    return parse_webrl_action(response, truncated=truncated, thinking=spec.thinking)


def _parse_tools(response: str, spec: PromptSpec, *, truncated: bool, max_calls: int) -> AnyAction | ParseError:
    return tool_calls.parse_tool_calls(response, limit=max_calls, truncated=truncated, thinking=spec.thinking)


def _require_web(action: AnyAction) -> Action:
    if not isinstance(action, Action):
        raise ValueError(f"the action set has no action {action.name}")
    return action


def _format_vanilla(action: AnyAction, mode: InteractionMode) -> str:
    return render_web_action(_require_web(action), mode)


def _format_complete(action: AnyAction, mode: InteractionMode) -> str:
    """Return a tool call after the sections of an expert: no memory, one goal."""
    call = _format_vanilla(action, mode)
    state = "done" if action.name is ActionName.ANSWER else "doing"
    line = sanitize_line(describe_action(action))
    return f"{format_sections(MemorySections(progress={'the task': state}, intention='the task', action=line))}\n{call}"


def _render_webrl(spec: PromptSpec, instruction: str, past: Sequence[Step], current: Observation) -> Conversation:
    turns = webrl_prompt.render_conversation(spec, instruction, past, current)
    return (*webrl_prompt.render_system_message(spec), *turns), ()


# A tool call on a page.
VANILLA = ActionSet(parse=_parse_web, format_action=_format_vanilla, template=vanilla.VANILLA)
# A tool call on a page, after memory, progress and intention.
COMPLETE = ActionSet(parse=_parse_web, format_action=_format_complete, template=memory_prompt.COMPLETE)
# WebRL's calls like `do(action="Click", element="12")`.
WEBRL = ActionSet(
    parse=_parse_webrl, format_action=lambda action, mode: render_webrl_action(action), render=_render_webrl
)
# Calls of tools, or an answer.
TOOLS = ActionSet(
    parse=_parse_tools,
    format_action=lambda action, mode: tool_calls.render_tool_calls(_require_web(action)),
    render=tool_calls.render_conversation,
)
