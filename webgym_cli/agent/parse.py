"""Reads a response. What is not exactly one well-formed tool call is a typed error, never a guess."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from webgym_cli.agent.reasoning import strip_reasoning
from webgym_cli.agent.tools import CALL_NAMES, FUNCTIONS
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.trajectory import ParseErrorKind

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)

# Argument of the call -> field of the action.
ARGUMENT_FIELDS = {
    "element_id": "element_id",
    "coordinate": "coordinate",
    "text": "text",
    "direction": "direction",
    "time": "seconds",
    "url": "url",
}

# The arguments that an action may have.
ALLOWED: dict[ActionName, frozenset[str]] = {
    ActionName.CLICK: frozenset({"element_id", "coordinate"}),
    ActionName.HOVER: frozenset({"element_id", "coordinate"}),
    ActionName.TYPE: frozenset({"element_id", "coordinate", "text"}),
    ActionName.SCROLL: frozenset({"direction"}),
    ActionName.WAIT: frozenset({"time"}),
    ActionName.GO_BACK: frozenset(),
    ActionName.NAVIGATE: frozenset({"url"}),
    ActionName.ANSWER: frozenset({"text"}),
}


@dataclass(frozen=True, slots=True)
class ParseError:
    """Why a response is not an action."""

    kind: ParseErrorKind
    detail: str = ""


def parse_web_action(
    response: str, mode: InteractionMode, *, truncated: bool = False, thinking: bool = False
) -> Action | ParseError:
    """Return the action of a response, or the reason why there is none.

    A tool call within a thought is thought, not done; `thinking`: the model thinks first, and what stands before the
    last `</think>` is its thought. `truncated` says that the response met its length limit: then a missing call has
    that reason. What stands around the call is free text.
    """
    calls = _CALL.findall(strip_reasoning(response, thinking=thinking))
    if len(calls) > 1:
        return ParseError(ParseErrorKind.SEVERAL_TOOL_CALLS, f"{len(calls)} tool calls")
    if not calls:
        kind = ParseErrorKind.TRUNCATED if truncated else ParseErrorKind.NO_TOOL_CALL
        return ParseError(kind, "no complete <tool_call>")
    try:
        call = json.loads(calls[0])
    except (ValueError, RecursionError) as error:
        return ParseError(ParseErrorKind.INVALID_JSON, str(error))
    if not isinstance(call, dict) or call.get("name") != FUNCTIONS[mode]:
        return ParseError(ParseErrorKind.UNKNOWN_FUNCTION, f"expected the function {FUNCTIONS[mode]}")
    arguments = call.get("arguments")
    if not isinstance(arguments, dict):
        return ParseError(ParseErrorKind.INVALID_ARGUMENTS, "arguments must be an object")
    return _make_action(arguments, mode)


def _make_action(arguments: Mapping[str, Any], mode: InteractionMode) -> Action | ParseError:
    names = {called: name for name, called in CALL_NAMES[mode].items()}
    called = arguments.get("action")
    if not isinstance(called, str) or called not in names:
        return ParseError(ParseErrorKind.UNKNOWN_ACTION, f"no action {called!r}")
    name = names[called]
    pointing = "element_id" if mode is InteractionMode.COORDINATES else "coordinate"
    given = {key: value for key, value in arguments.items() if key != "action"}
    if unknown := given.keys() - (ALLOWED[name] - {pointing}):
        return ParseError(ParseErrorKind.INVALID_ARGUMENTS, f"{called} has no argument {', '.join(sorted(unknown))}")
    fields = {ARGUMENT_FIELDS[key]: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    try:
        return Action.model_validate({"name": name, **fields}, strict=True)
    except ValidationError as error:
        return ParseError(ParseErrorKind.INVALID_ARGUMENTS, error.errors()[0]["msg"])
