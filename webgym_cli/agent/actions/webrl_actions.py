"""WebRL's action language: notes, then one call like `do(action="Click", element="12")` or `exit(message="...")`.

A call begins its line, and only a comment may follow it there; every other line is a note. Anything but exactly one
well-formed call is a typed error, never a guess. In lenient mode the last well-formed call outside of comments counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from webgym_cli.agent.actions.parse import ParseError, make_no_call_error
from webgym_cli.agent.forms.reasoning import strip_reasoning
from webgym_cli.agent.forms.webrl_forms import FORMS, WAIT_SECONDS
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.trajectory import ParseErrorKind
from webgym_cli.records.webrl import AnyAction, WebRLAction, WebRLActionName
from webgym_cli.util.literal_calls import BadCall, Call, Value, read_call
from webgym_cli.util.optional import when
from webgym_cli.util.text import skip_match

# Allowed before a call: white space, a list bullet, code marks.
_LEAD = re.compile(r"[\s`;]*(?:[-*>]\s+)?`*")
_OPENING = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\(")
_REST = re.compile(r"[ \t`;]*(#[^\n]*)?")
_WHOLE = re.compile(r"[0-9]{1,9}")
_DECIMAL = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,30})?(?:e-?[0-9]{1,3})?")
_BY_LOWER = {called.lower(): form for called, form in FORMS.items()}


class _UnknownNameError(ValueError):
    def __init__(self, kind: ParseErrorKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


def parse_webrl_action(
    response: str, *, truncated: bool = False, thinking: bool = False, lenient: bool = False
) -> AnyAction | ParseError:
    """Parse the action of a response, or return the reason why there is none.

    `thinking`: all text up to the last `</think>` is reasoning. `truncated`: the response reached its length limit,
    which is then the reason for a missing or incomplete call. `lenient`: a call may follow text on its line, may have
    superfluous arguments, and may be the last of several.
    """
    try:
        text = strip_reasoning(response, thinking=thinking)
        calls = _read_last_call(text) if lenient else _read_calls(text)
        if len(calls) > 1:
            return ParseError(ParseErrorKind.SEVERAL_TOOL_CALLS, f"{len(calls)} calls")
        if not calls:
            return make_no_call_error("no line begins with a call", truncated=truncated)
        return _FUNCTIONS[calls[0].name](calls[0])
    except _UnknownNameError as error:
        return ParseError(error.kind, str(error))
    except ValueError as error:
        if isinstance(error, BadCall) and error.is_open:
            return make_no_call_error(str(error), truncated=truncated)
        return ParseError.of_arguments(error)


def _read_calls(text: str) -> list[Call]:
    """Return the calls of a text. Raises `BadCall` or `_UnknownNameError` for the first malformed one."""
    calls: list[Call] = []
    unknown, at = "", 0
    while at < len(text):
        begin = skip_match(_LEAD, text, at)
        opening = _OPENING.match(text, begin)
        if opening and opening[1] in _FUNCTIONS:
            calls.append(read_call(text, begin))
            # After a call and its comment only another call may follow on its line.
            at = skip_match(_REST, text, calls[-1].end)
            opening = _OPENING.match(text, at)
            if at < len(text) and text[at] not in "\r\n" and not (opening and opening[1] in _FUNCTIONS):
                raise BadCall(f"after the call stands {text[at : at + 20]!r}")
            continue
        unknown = unknown or (opening[1] if opening else "")
        end = text.find("\n", begin)
        at = len(text) if end < 0 else end + 1
    if unknown and not calls:
        raise _UnknownNameError(ParseErrorKind.UNKNOWN_FUNCTION, f"there is no function {unknown}")
    return calls


def _read_last_call(text: str) -> list[Call]:
    """Return the last well-formed call without superfluous arguments, or the result of `_read_calls` without one."""
    call, at = None, 0
    while opening := _ANYWHERE.search(text, at):
        begin = opening.start()
        line = text.rfind("\n", at, begin) + 1
        if "#" in text[line or at : begin]:
            end = text.find("\n", begin)
            at = len(text) if end < 0 else end
            continue
        try:
            call = read_call(text, begin)
            at = call.end
        except BadCall:
            at = opening.end()
    if call is None:
        return _read_calls(text)
    form = _BY_LOWER.get(str(call.get(0, "action")).lower())
    wanted = {"exit": {"message"}, "quote": {"content"}}.get(call.name, set[str]())
    if call.name == "do":
        wanted = {"action", *(form.arguments if form else ())}
    return [replace(call, named={name: value for name, value in call.named.items() if name in wanted})]


def _read_do(call: Call) -> AnyAction:
    given = call.by_name(("action", "argument", "element"))
    called = given.pop("action", None)
    form = _BY_LOWER.get(called.lower()) if isinstance(called, str) else None
    if form is None:
        raise _UnknownNameError(ParseErrorKind.UNKNOWN_ACTION, f"no action {called!r}")
    if unknown := given.keys() - form.arguments:
        raise BadCall(f"{called} has no argument {', '.join(sorted(unknown))}")
    fields: dict[str, Any] = when(form.direction, {"direction": form.direction})
    if "element" in given:
        fields["element_id"] = _read_integer("element", given["element"])
    if form.argument and "argument" in given:
        fields[form.argument] = _READ[form.argument]("argument", given["argument"])
    elif form.argument == "seconds":
        fields["seconds"] = WAIT_SECONDS
    return _make_action(form.name, fields)


def _read_quote(call: Call) -> AnyAction:
    given = _take_arguments(call, "content")
    return _make_action(WebRLActionName.QUOTE, {"text": _read_text("content", given["content"])} if given else {})


_FUNCTIONS: dict[str, Callable[[Call], AnyAction]] = {
    "do": _read_do,
    # Without a message the answer is empty, where WebRL's released code ends the task with an error.
    "exit": lambda call: _make_action(
        ActionName.ANSWER, {"text": _read_text("message", _take_arguments(call, "message").get("message", ""))}
    ),
    "quote": _read_quote,
    "go_backward": lambda call: _make_action(ActionName.GO_BACK, _take_arguments(call)),
    "go_forward": lambda call: _make_action(WebRLActionName.GO_FORWARD, _take_arguments(call)),
}
# The beginning of a call, at any position of a line.
_ANYWHERE = re.compile(rf"\b(?:{'|'.join(_FUNCTIONS)})\(")


def _make_action(name: ActionName | WebRLActionName, fields: dict[str, Any]) -> AnyAction:
    kind = Action if isinstance(name, ActionName) else WebRLAction
    return kind.model_validate({"name": name, **fields}, strict=True)


def _take_arguments(call: Call, *parameters: str) -> dict[str, Value]:
    given = call.by_name(parameters)
    if unknown := given.keys() - set(parameters):
        raise BadCall(f"{call.name} has no argument {', '.join(sorted(unknown))}")
    return given


def _read_text(name: str, value: Value) -> str:
    if not isinstance(value, str):
        raise BadCall(f"{name} must be a text in quotes")
    return value


def _match_number(pattern: re.Pattern[str], name: str, value: Value, what: str) -> str:
    text = str(value) if isinstance(value, str | int | float) else ""
    if not pattern.fullmatch(text):
        raise BadCall(f"{name} must be {what}")
    return text


def _read_integer(name: str, value: Value) -> int:
    return int(_match_number(_WHOLE, name, value, "a whole number"))


_READ: dict[str, Callable[[str, Value], str | int | float]] = {
    "text": _read_text,
    "tab": _read_integer,
    "seconds": lambda name, value: float(_match_number(_DECIMAL, name, value, "a number of seconds")),
}
