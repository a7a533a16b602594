"""Calls in the tags of the Hermes format: JSON between <tool_call> tags, results between <tool_response> tags."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from webgym_cli.agent.actions.call_formats import Reading, Schemas, make_call_format
from webgym_cli.agent.actions.parse import ParseError, find_unknown_keys, read_tagged_calls
from webgym_cli.agent.forms.tools import format_tool_call
from webgym_cli.records.trajectory import ParseErrorKind


def read_tool_calls(response: str, tools: Schemas) -> Reading | ParseError:
    """Parse the calls of a response; return them and the text around them."""
    tagged = read_tagged_calls(response)
    for value in tagged.calls:
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            return ParseError(ParseErrorKind.UNKNOWN_FUNCTION, "no function is named")
        if unknown := find_unknown_keys(value):
            return ParseError(ParseErrorKind.INVALID_ARGUMENTS, unknown)
    if tagged.error:
        return tagged.error
    return [(value["name"], value.get("arguments", {})) for value in tagged.calls], tagged.around


def write_tool_calls(content: str, calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """Format tool calls, or an answer, as a response: the inverse of `read_tool_calls`."""
    return "\n".join([*filter(None, [content]), *(format_tool_call(*call) for call in calls)])


def describe_tools(tools: Schemas) -> str:
    """Return the description of the tools and of their calls for the system message."""
    return (
        "These tools help you, one JSON schema a line:\n"
        f"<tools>\n{_format_schemas(tools)}\n</tools>\n"
        "To call tools, write each call as JSON between tags of its own:\n"
        '<tool_call>\n{"name": <function>, "arguments": <object>}\n</tool_call>\n'
        "The results come in the next turn."
    )


def describe_as_qwen(tools: Schemas) -> str:
    """Return the description that the chat templates of Qwen2.5 and Qwen3 append to the system message for tools."""
    return (
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n"
        f"<tools>\n{_format_schemas(tools)}\n</tools>\n\n"
        "For each function call, return a json object with function name and arguments within <tool_call></tool_call> "
        'XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    )


def _format_schemas(tools: Schemas) -> str:
    return "\n".join(json.dumps(schema, ensure_ascii=False) for schema in tools)


_FUNCTIONS = (read_tool_calls, write_tool_calls, lambda text: f"<tool_response>\n{text}\n</tool_response>")
HERMES = make_call_format(describe_tools, *_FUNCTIONS)
QWEN = make_call_format(describe_as_qwen, *_FUNCTIONS)
