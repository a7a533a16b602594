"""Parser of responses. Anything but exactly one well-formed tool call is a typed error, never a guess."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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


def make_no_call_error(detail: str, *, truncated: bool) -> ParseError:
    """Return the error of a response without a complete call. `truncated`: it reached its length limit."""
    return ParseError(ParseErrorKind.TRUNCATED if truncated else ParseErrorKind.NO_TOOL_CALL, detail)


def parse_web_action(
    response: str,
    mode: InteractionMode,
    *,
    truncated: bool = False,
    thinking: bool = False,
    actions: WebActions = BASIC,
) -> Action | ParseError:
    """Parse the action of a response, or return the reason why there is none.

    Tool calls within the reasoning do not count; with `thinking`, the reasoning is all text up to the last `</think>`.
    `truncated`: the response reached its length limit, which is then the reason for a missing call. Text around the
    call is ignored.
    """
    calls = _CALL.findall(strip_reasoning(response, thinking=thinking))
    if len(calls) > 1:
        return ParseError(ParseErrorKind.SEVERAL_TOOL_CALLS, f"{len(calls)} tool calls")
    if not calls:
        return make_no_call_error("no complete <tool_call>", truncated=truncated)
    try:
        call = json.loads(calls[0])
    except (ValueError, RecursionError) as error:
        return ParseError(ParseErrorKind.INVALID_JSON, str(error))
    if not isinstance(call, dict) or call.get("name") != actions.functions[mode]:
        return ParseError(ParseErrorKind.UNKNOWN_FUNCTION, f"expected the function {actions.functions[mode]}")
    arguments = call.get("arguments")
    if not isinstance(arguments, dict):
        return ParseError(ParseErrorKind.INVALID_ARGUMENTS, "arguments must be an object")
    return read_arguments(actions, arguments, mode)


def read_arguments(actions: WebActions, arguments: Mapping[str, Any], mode: InteractionMode) -> Action | ParseError:
    """Convert the arguments of a call to an action, or return the reason why they are invalid."""
    try:
        return actions.read(arguments, mode)
    except UnknownActionError as error:
        return ParseError(ParseErrorKind.UNKNOWN_ACTION, str(error))
    except ValidationError as error:
        return ParseError(ParseErrorKind.INVALID_ARGUMENTS, error.errors()[0]["msg"])
    except ValueError as error:
        return ParseError(ParseErrorKind.INVALID_ARGUMENTS, str(error))
