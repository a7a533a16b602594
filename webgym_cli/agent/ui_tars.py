"""The action set `ui_tars`: UI-TARS' names in its form, a line `Action: click(point='<point>500 300</point>')`.

Names and arguments as in UI-TARS' published prompts for computers (github.com/bytedance/UI-TARS, `codes/ui_tars`); the
older `start_box='(500,300)'` is read as well. Points run from 0 to 1000 on both axes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from webgym_cli.agent.action_forms import UnknownActionError
from webgym_cli.agent.action_sets import ActionSet
from webgym_cli.agent.parse import ParseError
from webgym_cli.agent.prompt_template import PromptTemplate
from webgym_cli.agent.reasoning import strip_reasoning
from webgym_cli.agent.vanilla import render_plain_head, render_plain_turn
from webgym_cli.agent.web_actions import DIALOG_KEYS
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.trajectory import ParseErrorKind, PromptSpec
from webgym_cli.records.webrl import AnyAction

_SYSTEM = """\
You operate a web browser to carry out a task. Each turn shows a screenshot of a web page. Reply with two lines:
Thought: what you see and what you do next
Action: one call of the list below
The calls:
click(point='<point>x y</point>')
left_double(point='<point>x y</point>')
right_single(point='<point>x y</point>')
drag(start_point='<point>x y</point>', end_point='<point>x y</point>')
hotkey(key='ctrl a')
type(content='text')
scroll(point='<point>x y</point>', direction='down')
wait()
finished(content='answer')
Points run from 0 to 1000 on both axes, from the top left corner. Keys of a hotkey are in lower case with blanks between
them. A scroll goes up, down, left or right. Typing goes to what has the focus and keeps what is there; \\n at the end
presses Enter. Quotes and backslashes in a text are escaped by a backslash. finished ends the task, with its answer
where it asks for information."""
# Seconds of `wait`.
_WAIT = 5.0
_ACTION = re.compile(r"^Action:\s*(.+)", re.MULTILINE | re.DOTALL)
_POINT = re.compile(r"(?:<point>|<\|box_start\|>)?\(?\s*(-?[\d.]+)[\s,]+(-?[\d.]+)\s*\)?(?:</point>|<\|box_end\|>)?")
# The older names of arguments.
_RENAMED = {"start_box": "point", "end_box": "end_point"}
_CLICKS: dict[str, dict[str, Any]] = {"click": {}, "left_double": {"clicks": 2}, "right_single": {"button": "right"}}
_TYPED: dict[str, Any] = {"here": True, "append": True}


def read_action(text: str) -> Action:
    """Return the action of a call. Raises `ValueError` with what is wrong with it."""
    name, given = _read_call(text)
    if name == "drag" and "point" in given:
        given["start_point"] = given.pop("point")
    if name not in _READERS:
        raise UnknownActionError(f"no action {name!r}")
    wanted, build = _READERS[name]
    if given.keys() != set(wanted):
        raise ValueError(f"{name} takes {', '.join(wanted) or 'no argument'}, not {', '.join(given) or 'none'}")
    try:
        return Action.model_validate(build(given))
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"]) from error


def _read_call(text: str) -> tuple[str, dict[str, str]]:
    """Return name and arguments of a call whose arguments are texts."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError("the action is no call with quoted arguments") from error
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.args:
        raise ValueError("the action is no call with named arguments")
    given: dict[str, str] = {}
    for argument in node.keywords:
        if argument.arg is None or not isinstance(argument.value, ast.Constant):
            raise ValueError("an argument is no text")
        given[_RENAMED.get(argument.arg, argument.arg)] = str(argument.value.value)
    return node.func.id, given


def _read_point(text: str) -> tuple[float, float]:
    match = _POINT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no point")
    return float(match[1]), float(match[2])


def _click(fields: Mapping[str, Any]) -> Callable[[Mapping[str, str]], dict[str, Any]]:
    return lambda given: {"name": ActionName.CLICK, "coordinate": _read_point(given["point"]), **fields}


def _drag(given: Mapping[str, str]) -> dict[str, Any]:
    ends = {"coordinate": _read_point(given["start_point"]), "to_coordinate": _read_point(given["end_point"])}
    return {"name": ActionName.DRAG, **ends}


def _scroll(given: Mapping[str, str]) -> dict[str, Any]:
    return {"name": ActionName.SCROLL, "coordinate": _read_point(given["point"]), "direction": given["direction"]}


# The arguments of each call, and the fields of the action that it stands for.
_READERS: dict[str, tuple[tuple[str, ...], Callable[[Mapping[str, str]], dict[str, Any]]]] = {
    **{name: (("point",), _click(fields)) for name, fields in _CLICKS.items()},
    "drag": (("start_point", "end_point"), _drag),
    "hotkey": (("key",), lambda given: {"name": ActionName.KEY, "keys": tuple(given["key"].split())}),
    "type": (("content",), lambda given: {"name": ActionName.TYPE, "text": given["content"], **_TYPED}),
    "scroll": (("point", "direction"), _scroll),
    "wait": ((), lambda given: {"name": ActionName.WAIT, "seconds": _WAIT}),
    "finished": (("content",), lambda given: {"name": ActionName.ANSWER, "text": given["content"]}),
}


def write_action(action: AnyAction, mode: InteractionMode) -> str:
    """Return the response that is read as an action. Raises `ValueError` where the set can't say it."""
    if isinstance(action, Action):
        for call in _candidates(action):
            if _is_alike(read_action(call), action):
                return f"Thought: {action.name.value}\nAction: {call}"
    raise ValueError(f"the action set has no such action: {action.model_dump_json(exclude_none=True)}")


def _candidates(action: Action) -> list[str]:
    """Return the calls that may stand for an action."""
    at, to = _write_point(action.coordinate), _write_point(action.to_coordinate)
    pointed = {
        ActionName.CLICK: [f"{name}(point={at})" for name in _CLICKS],
        ActionName.DRAG: [f"drag(start_point={at}, end_point={to})"] if to else [],
        ActionName.SCROLL: [f"scroll(point={at}, direction={action.direction!r})"],
    }
    others = {
        ActionName.KEY: [f"hotkey(key={' '.join(action.keys or ())!r})"],
        ActionName.TYPE: [f"type(content={action.text!r})"],
        ActionName.WAIT: ["wait()"],
        ActionName.ANSWER: [f"finished(content={action.text!r})"],
    }
    return ((pointed if at else {}) | others).get(action.name, [])


def _write_point(point: tuple[float, float] | None) -> str:
    return "" if point is None else f"'<point>{point[0]:g} {point[1]:g}</point>'"


def _is_alike(read: Action, action: Action) -> bool:
    """Whether two actions are the same for this set, which has no length of a wait."""
    return read.model_copy(update={"seconds": None}) == action.model_copy(update={"seconds": None})


def _parse(response: str, spec: PromptSpec, *, truncated: bool, max_calls: int) -> AnyAction | ParseError:
    match = _ACTION.search(strip_reasoning(response, thinking=spec.thinking))
    if match is None:
        kind = ParseErrorKind.TRUNCATED if truncated else ParseErrorKind.NO_TOOL_CALL
        return ParseError(kind, "no line begins with Action:")
    try:
        return read_action(match[1])
    except UnknownActionError as error:
        return ParseError(ParseErrorKind.UNKNOWN_ACTION, str(error))
    except ValueError as error:
        return ParseError(ParseErrorKind.TRUNCATED if truncated else ParseErrorKind.INVALID_ARGUMENTS, str(error))


def _make_set(system: str, answering: ActionSet | None = None) -> ActionSet:
    return ActionSet(
        parse=_parse,
        format_action=write_action,
        template=PromptTemplate(lambda mode: system, render_plain_head, render_plain_turn),
        modes=(InteractionMode.COORDINATES,),
        answering=answering,
    )


UI_TARS = _make_set(_SYSTEM, answering=_make_set(f"{_SYSTEM} {DIALOG_KEYS}"))
