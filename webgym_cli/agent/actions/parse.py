"""Parser of responses. Anything but exactly one well-formed tool call is a typed error, never a guess."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from webgym_cli.agent.forms.action_forms import UnknownActionError, WebActions
from webgym_cli.agent.forms.reasoning import strip_reasoning
from webgym_cli.agent.forms.web_actions import BASIC
from webgym_cli.records.action import Action, InteractionMode
from webgym_cli.records.trajectory import ParseErrorKind
from webgym_cli.util.optional import when
from webgym_cli.util.text import skip_match

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")
_KEYS = frozenset({"name", "arguments"})


@dataclass(frozen=True, slots=True)
class ParseError:
    """Why a response is not an action."""

    kind: ParseErrorKind
    detail: str = ""

    @classmethod
    def of_arguments(cls, error: ValueError) -> ParseError:
        """Return the error of a call whose arguments are invalid."""
        detail = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        return cls(ParseErrorKind.INVALID_ARGUMENTS, detail)


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
    tagged = read_tagged_calls(strip_reasoning(response, thinking=thinking))
    error = None if tagged.error and tagged.error.kind is ParseErrorKind.NO_TOOL_CALL else tagged.error
    count = len(tagged.calls) + (error is not None)
    if count > 1:
        return ParseError(ParseErrorKind.SEVERAL_TOOL_CALLS, f"{count} tool calls")
    if error or not count:
        return error or make_no_call_error("no complete <tool_call>", truncated=truncated)
    call = tagged.calls[0]
    if not isinstance(call, dict) or call.get("name") != actions.functions[mode]:
        return ParseError(ParseErrorKind.UNKNOWN_FUNCTION, f"expected the function {actions.functions[mode]}")
    if unknown := find_unknown_keys(call):
        return ParseError(ParseErrorKind.INVALID_ARGUMENTS, unknown)
    arguments = call.get("arguments")
    if not isinstance(arguments, dict):
        return ParseError(ParseErrorKind.INVALID_ARGUMENTS, "arguments must be an object")
    return read_arguments(actions, arguments, mode)


@dataclass(frozen=True, slots=True)
class TaggedCalls:
    """JSON values between `<tool_call>` tags, up to the first that can't be read."""

    calls: list[Any]
    around: str
    """The text outside of the tags."""
    error: ParseError | None
    """Why the next call can't be read: `INVALID_JSON`, or `NO_TOOL_CALL` if its tag is not closed."""


def read_tagged_calls(text: str) -> TaggedCalls:
    """Read the calls in the tags of the Hermes format, in linear time. A call ends where its JSON value ends.

    A string of the value may contain any text, also tags.
    """
    calls: list[Any] = []
    around, at = [], 0
    while (tag := text.find(_OPEN, at)) >= 0:
        around.append(text[at:tag])
        begin = skip_match(_SPACE, text, tag + len(_OPEN))
        try:
            value, end = _DECODER.raw_decode(text, begin)
            at = skip_match(_SPACE, text, end)
            reason = "" if text.startswith(_CLOSE, at) else f"after the call stands {text[at : at + 20]!r}"
        except (ValueError, RecursionError) as error:
            reason = str(error)
        if reason and text.find(_CLOSE, begin) < 0:
            return TaggedCalls(calls, "", ParseError(ParseErrorKind.NO_TOOL_CALL, "a call that does not end"))
        if reason:
            return TaggedCalls(calls, "", ParseError(ParseErrorKind.INVALID_JSON, reason))
        calls.append(value)
        at += len(_CLOSE)
    return TaggedCalls(calls, "".join((*around, text[at:])), None)


def find_unknown_keys(call: Mapping[str, Any]) -> str:
    """Return the error of a call with other keys than `name` and `arguments`, which would run with defaults, or ""."""
    unknown = sorted(call.keys() - _KEYS)
    return when(unknown, f"a call has no key {', '.join(unknown)}")


def read_arguments(actions: WebActions, arguments: Mapping[str, Any], mode: InteractionMode) -> Action | ParseError:
    """Convert the arguments of a call to an action, or return the reason why they are invalid."""
    try:
        return actions.read(arguments, mode)
    except UnknownActionError as error:
        return ParseError(ParseErrorKind.UNKNOWN_ACTION, str(error))
    except ValueError as error:
        return ParseError.of_arguments(error)
