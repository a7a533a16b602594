"""The built-in call formats: `react` (ReAct's lines), `code` (Python code blocks), and those of the Hermes format.

In the latter calls are JSON between <tool_call> tags, and results stand between <tool_response> tags.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from webgym_cli.agent.actions.call_formats import Reading, Schemas, make_call_format
from webgym_cli.agent.actions.parse import ParseError, find_unknown_keys, read_tagged_calls
from webgym_cli.agent.forms.tools import format_tool_call
from webgym_cli.records.trajectory import ParseErrorKind
from webgym_cli.util.json_values import as_object
from webgym_cli.util.optional import when

_ACTION = re.compile(
    r"^Action:[ \t]*(?P<name>\S+)[ \t]*\n(?:Action )?Input:(?P<input>.*?)(?=^(?:Thought|Action|Final Answer):|\Z)",
    re.MULTILINE | re.DOTALL,
)
_ANSWER = "Final Answer:"
# A hallucinated tool result and the text after it.
_OBSERVATION = re.compile(r"^Observation:.*", re.MULTILINE | re.DOTALL)
# The first or last line of a code block. Code that contains three backticks stands in a block with more of them.
_FENCE = re.compile(r"^(`{3,})(python)?[ \t]*$", re.MULTILINE)


def describe_react(tools: Schemas) -> str:
    """Return the description of the tools for the system message, in ReAct's format."""
    functions = [schema["function"] for schema in tools]
    listed = "\n".join(
        f"{function['name']}: {function['description']} Input: {json.dumps(function['parameters'], ensure_ascii=False)}"
        for function in functions
    )
    names = ", ".join(function["name"] for function in functions)
    return (
        f"You have these tools:\n{listed}\n\nUse this form:\n\nThought: what to do next\nAction: one of {names}\n"
        "Action Input: a JSON object of the arguments\n\nEach result comes in the next turn as an Observation. At the "
        f"end:\n\nThought: why you know it\n{_ANSWER} the answer"
    )


def read_react(text: str, tools: Schemas) -> Reading | ParseError:
    """Parse the actions of a response with their inputs, or its final answer."""
    text = _OBSERVATION.sub("", text)
    matches = list(_ACTION.finditer(text))
    if not matches:
        if re.search(r"^Action:", text, re.MULTILINE):
            return ParseError(ParseErrorKind.NO_TOOL_CALL, "an Action without an Action Input")
        return [], text.rpartition(_ANSWER)[2]
    calls, parameters = [], _list_parameters(tools)
    for action in matches:
        arguments = _read_input(action["input"].strip(), parameters.get(action["name"], []))
        if arguments is None:
            return ParseError(ParseErrorKind.INVALID_JSON, f"the Action Input of {action['name']} is no JSON object")
        calls.append((action["name"], arguments))
    return calls, text[: matches[0].start()].strip().removeprefix("Thought:")


def write_react(content: str, calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """Format calls, or an answer, as ReAct's lines: the inverse of `read_react`."""
    if not calls:
        return f"{_ANSWER} {content}"
    lines = when(content, [f"Thought: {content}"])
    for name, arguments in calls:
        lines += [f"Action: {name}", f"Action Input: {json.dumps(arguments, ensure_ascii=False)}"]
    return "\n".join(lines)


def describe_code(tools: Schemas) -> str:
    """Return the description of the tool that runs code for the system message."""
    about = f"{runner['description']}\n" if (runner := _find_runner(tools)) else ""
    return (
        f"To run Python code, write it in a block of its own, or in several:\n```python\n...\n```\n{about}"
        "Its output comes in the next turn. A reply without a block is the answer."
    )


def read_code(text: str, tools: Schemas) -> Reading | ParseError:
    """Parse the code blocks of a response as calls of the tool with a parameter `code`."""
    around, blocks = _split_blocks(text)
    if "```python" in around:
        return ParseError(ParseErrorKind.NO_TOOL_CALL, "a block that does not end")
    runner = _find_runner(tools)
    if blocks and not runner:
        return ParseError(ParseErrorKind.UNKNOWN_FUNCTION, "no tool takes code")
    return [(runner["name"], {"code": block}) for block in blocks if runner], around


def write_code(content: str, calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """Format calls as code blocks: the inverse of `read_code`. Raises `ValueError` for arguments other than `code`."""
    if wrong := next((name for name, arguments in calls if arguments.keys() != {"code"}), None):
        raise ValueError(f"a call of {wrong} is no code")
    return "\n".join([*filter(None, [content]), *(_write_block(arguments["code"]) for _, arguments in calls)])


def _write_block(code: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`{3,}", code)), default=0))
    return f"{fence}python\n{code.removesuffix(chr(10))}\n{fence}"


def _split_blocks(text: str) -> tuple[str, list[str]]:
    """Return the text around the code blocks, and the blocks; one that does not end is left in the text."""
    around, blocks, at = [], [], 0
    opening: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opening is None:
            opening = fence if fence[2] else None
        elif not fence[2] and len(fence[1]) >= len(opening[1]):
            around.append(text[at : opening.start()])
            blocks.append(text[opening.end() + 1 : fence.start()])
            opening, at = None, fence.end()
    return "".join((*around, text[at:])), blocks


def _read_input(text: str, parameters: Sequence[str]) -> dict[str, Any] | None:
    """Parse an input as arguments. Any value but a JSON object is the argument of a tool with one parameter.

    An object ends the input, whatever stands on the lines after it.
    """
    try:
        value, end = json.JSONDecoder().raw_decode(text)
        rest = text[end:].lstrip(" \t\r")
    except (ValueError, RecursionError):
        value, rest = text, ""
    if isinstance(value, dict) and rest[:1] in ("", "\n"):
        return value
    if rest:
        value = text
    return {parameters[0]: value} if len(parameters) == 1 and text else None


def _list_parameters(tools: Schemas) -> dict[str, list[str]]:
    """Return the names of each function's parameters; an agent's own may have no `properties`."""
    functions = (schema["function"] for schema in tools)
    return {function["name"]: list(as_object(function["parameters"].get("properties"))) for function in functions}


def _find_runner(tools: Schemas) -> dict[str, Any] | None:
    """Return the function with a parameter `code`; None if there is none."""
    parameters, functions = _list_parameters(tools), (schema["function"] for schema in tools)
    return next((function for function in functions if "code" in parameters[function["name"]]), None)


REACT = make_call_format(describe_react, read_react, write_react, lambda text: f"Observation: {text}")
CODE = make_call_format(describe_code, read_code, write_code, lambda text: f"```output\n{text}\n```")


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
