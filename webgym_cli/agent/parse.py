"""Reads a response. What is not exactly one well-formed tool call is a typed error, never a guess."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from pydantic import ValidationError

from webgym_cli.agent.action_forms import UnknownActionError, WebActions
from webgym_cli.agent.reasoning import strip_reasoning
from webgym_cli.agent.web_actions import BASIC
from webgym_cli.records.action import Action, InteractionMode
from webgym_cli.records.trajectory import ParseErrorKind

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ParseError:
    """Why a response is not an action."""

    kind: ParseErrorKind
    detail: str = ""


def parse_web_action(
    response: str,
    mode: InteractionMode,
    *,
    truncated: bool = False,
    thinking: bool = False,
    actions: WebActions = BASIC,
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
    if not isinstance(call, dict) or call.get("name") != actions.functions[mode]:
        return ParseError(ParseErrorKind.UNKNOWN_FUNCTION, f"expected the function {actions.functions[mode]}")
    arguments = call.get("arguments")
    if not isinstance(arguments, dict):
        return ParseError(ParseErrorKind.INVALID_ARGUMENTS, "arguments must be an object")
    try:
        return actions.read(arguments, mode)
    except UnknownActionError as error:
        return ParseError(ParseErrorKind.UNKNOWN_ACTION, str(error))
    except ValidationError as error:
        return ParseError(ParseErrorKind.INVALID_ARGUMENTS, error.errors()[0]["msg"])
    except ValueError as error:
        return ParseError(ParseErrorKind.INVALID_ARGUMENTS, str(error))
