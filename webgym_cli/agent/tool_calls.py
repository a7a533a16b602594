"""The conversation of an agent that calls tools: how it is told of them, how its calls and their results are written.

In the tags of the Hermes format, which the chat templates of Qwen2.5, Qwen3 and their relatives use themselves: calls
between <tool_call> tags, results between <tool_response> tags in a user's turn. All of it is plain text in messages, so
any server renders it, nothing on its side parses it, and what was sampled is kept as it came.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import ValidationError

from webgym_cli.agent.parse import ParseError
from webgym_cli.agent.reasoning import history_text, strip_reasoning
from webgym_cli.agent.sanitize import sanitize_page, sanitize_text
from webgym_cli.agent.tools import format_tool_call
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.sample import IMAGE, Message
from webgym_cli.records.tool import ToolCall
from webgym_cli.records.trajectory import Observation, ParseErrorKind, PromptSpec, Step

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_PARSE_ERROR = "The last reply could not be read: {}. Nothing was called."


def parse_tool_calls(
    response: str, *, limit: int, truncated: bool = False, thinking: bool = False
) -> Action | ParseError:
    """Return what a response does: calls of tools, or, where it has none, its answer.

    `limit`: calls at most. `truncated`, `thinking`: as for the web agent's `parse`. A call that can't be read spoils
    the whole response: nothing is guessed, and nothing done by halves.
    """
    said = strip_reasoning(response, thinking=thinking)
    found = _CALL.findall(said)
    around = _CALL.sub("", said)
    if "<tool_call>" in around or (not found and (truncated or not around.strip())):
        kind = ParseErrorKind.TRUNCATED if truncated else ParseErrorKind.NO_TOOL_CALL
        return ParseError(kind, "a call that does not end, or nothing at all")
    if not found:
        return _make_action(name=ActionName.ANSWER, text=around.strip())
    if len(found) > limit:
        return ParseError(ParseErrorKind.SEVERAL_TOOL_CALLS, f"{len(found)} calls, {limit} are allowed")
    calls = [_parse_call(text) for text in found]
    if wrong := next((call for call in calls if isinstance(call, ParseError)), None):
        return wrong
    return _make_action(name=ActionName.CALL, calls=tuple(calls), text=around.strip() or None)


def render_tool_calls(action: Action) -> str:
    """Return calls of tools, or an answer, as the text of a response: the inverse of `parse_tool_calls`."""
    said = [action.text] if action.text else []
    return "\n".join([*said, *(format_tool_call(call.name, call.arguments) for call in action.calls or ())])


def _parse_call(text: str) -> ToolCall | ParseError:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return ParseError(ParseErrorKind.INVALID_JSON, str(error))
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return ParseError(ParseErrorKind.UNKNOWN_FUNCTION, "no function is named")
    try:
        return ToolCall(name=value["name"], arguments=value.get("arguments", {}))
    except ValidationError as error:
        return ParseError(ParseErrorKind.INVALID_ARGUMENTS, error.errors()[0]["msg"])


def _make_action(**fields: Any) -> Action | ParseError:
    try:
        return Action(**fields)
    except ValidationError as error:
        return ParseError(ParseErrorKind.INVALID_ARGUMENTS, error.errors()[0]["msg"])


def render_system_message(spec: PromptSpec) -> Message:
    """Return the system message: what the settings say, the tools, and how to call them."""
    tools = spec.tools or ()
    parts = [spec.system_prompt or "You answer questions. When you know the answer, give it without calling a tool."]
    if tools:
        schemas = "\n".join(json.dumps(schema, ensure_ascii=False) for schema in tools)
        parts.append(
            "These tools help you, one JSON schema a line:\n"
            f"<tools>\n{schemas}\n</tools>\n"
            "To call tools, write each call as JSON between tags of its own:\n"
            '<tool_call>\n{"name": <function>, "arguments": <object>}\n</tool_call>\n'
            "The results come in the next turn."
        )
    return Message(role="system", content="\n\n".join(parts))


def render_conversation(
    spec: PromptSpec, instruction: str, past: Sequence[Step], current: Observation
) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """Return the messages and the images of the prompt for the current observation: all rounds so far, in full."""
    messages = [render_system_message(spec), Message(role="user", content=sanitize_page(instruction))]
    seen = [step.observation for step in past[1:]] + ([current] if past else [])
    for step, observation in zip(past, seen, strict=True):
        reply = history_text(step.response, thinking=spec.thinking)
        messages.append(Message(role="assistant", content=sanitize_text(reply)))
        messages.append(Message(role="user", content="\n".join(_format_results(step, observation))))
    images = (picture.sha256 for observation in seen for picture in observation.pictures)
    return tuple(messages), tuple(images)


def _format_results(step: Step, after: Observation) -> Iterator[str]:
    """Yield what came of a step, a part for each call; or why nothing came of it."""
    if step.parse_error is not None:
        yield _PARSE_ERROR.format(step.parse_error)
    elif step.action_error is not None:
        yield sanitize_page(step.action_error)
    for result in after.results:
        picture = f"{IMAGE}\n" if result.image else ""
        yield f"<tool_response>\n{picture}{sanitize_page(result.text)}\n</tool_response>"
