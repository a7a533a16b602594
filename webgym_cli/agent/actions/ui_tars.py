"""The action set `ui_tars`: UI-TARS' actions and syntax, a line `Action: click(point='<point>500 300</point>')`.

Names and arguments as in UI-TARS' published prompts for computers (github.com/bytedance/UI-TARS, `codes/ui_tars`); the
older `start_box='(500,300)'` is read as well. Points run from 0 to 1000 on both axes.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from webgym_cli.agent.actions.action_sets import ActionSet
from webgym_cli.agent.actions.parse import ParseError, make_no_call_error, read_arguments
from webgym_cli.agent.forms.action_forms import Argument, CallForm, WebActions, make_argument
from webgym_cli.agent.forms.reasoning import strip_reasoning
from webgym_cli.agent.forms.web_actions import COORDINATES, DIALOG_KEYS
from webgym_cli.agent.prompts.prompt_template import PromptTemplate
from webgym_cli.agent.prompts.vanilla import render_plain_head, render_plain_turn
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
_ACTION = re.compile(r"^Action:\s*(.+)", re.MULTILINE | re.DOTALL)
_POINT = re.compile(r"(?:<point>|<\|box_start\|>)?\(?\s*(-?[\d.]+)[\s,]+(-?[\d.]+)\s*\)?(?:</point>|<\|box_end\|>)?")
# Older names of arguments -> current ones.
_RENAMED = {"start_box": "point", "end_box": "end_point"}


def _make_point(name: str) -> Argument:

    def read(value: str) -> dict[str, Any]:
        match = _POINT.fullmatch(value.strip())
        if match is None:
            raise ValueError(f"{value!r} is no point")
        return {name: (float(match[1]), float(match[2]))}

    def write(action: Action) -> str | None:
        point = getattr(action, name)
        return point and f"<point>{point[0]:g} {point[1]:g}</point>"

    return Argument({}, read, write)


_ACTIONS = WebActions(
    functions={COORDINATES: "Action"},
    forms={
        COORDINATES: {
            "click": CallForm(ActionName.CLICK, "point"),
            "left_double": CallForm(ActionName.CLICK, "point", {"clicks": 2}),
            "right_single": CallForm(ActionName.CLICK, "point", {"button": "right"}),
            # Of UI-TARS' prompt for phones.
            "long_press": CallForm(ActionName.CLICK, "point", {"seconds": 1.0}),
            "drag": CallForm(ActionName.DRAG, "start_point end_point"),
            "hotkey": CallForm(ActionName.KEY, "key"),
            "type": CallForm(ActionName.TYPE, "content", {"here": True, "append": True}),
            "scroll": CallForm(ActionName.SCROLL, "point direction"),
            # `wait` has no duration.
            "wait": CallForm(ActionName.WAIT, fields={"seconds": 5.0}, ignored=frozenset({"seconds"})),
            "finished": CallForm(ActionName.ANSWER, "content"),
        }
    },
    arguments={
        "point": _make_point("coordinate"),
        "start_point": _make_point("coordinate"),
        "end_point": _make_point("to_coordinate"),
        "key": Argument(
            {}, lambda value: {"keys": tuple(value.split())}, lambda action: action.keys and " ".join(action.keys)
        ),
        "content": make_argument("text", ""),
        "direction": make_argument("direction", ""),
    },
)


def _read_call(text: str) -> dict[str, str]:
    """Parse a call; return its arguments as texts, and its name as `action`. Raises `ValueError`."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError("the action is no call with quoted arguments") from error
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.args:
        raise ValueError("the action is no call with named arguments")
    given: dict[str, str] = {}
    for argument in node.keywords:
        if argument.arg in (None, "action") or not isinstance(argument.value, ast.Constant):
            raise ValueError("an argument is no text")
        name = _RENAMED.get(argument.arg, argument.arg)
        if name in given:
            raise ValueError(f"the argument {name} is given twice")
        given[name] = str(argument.value.value)
    if node.func.id == "drag" and "point" in given:
        given["start_point"] = given.pop("point")
    return given | {"action": node.func.id}


def _write(action: AnyAction, mode: InteractionMode) -> str:
    arguments = _ACTIONS.write(action, COORDINATES)
    called = arguments.pop("action")
    given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return f"Thought: {action.name}\nAction: {called}({given})"


def _parse(response: str, spec: PromptSpec, *, truncated: bool, max_calls: int) -> AnyAction | ParseError:
    match = _ACTION.search(strip_reasoning(response, thinking=spec.thinking))
    if match is None:
        return make_no_call_error("no line begins with Action:", truncated=truncated)
    try:
        action = read_arguments(_ACTIONS, _read_call(match[1]), COORDINATES)
    except ValueError as error:
        action = ParseError.of_arguments(error)
    if truncated and isinstance(action, ParseError) and action.kind is ParseErrorKind.INVALID_ARGUMENTS:
        return ParseError(ParseErrorKind.TRUNCATED, action.detail)
    return action


def _make_set(system: str, with_dialogs: ActionSet | None = None) -> ActionSet:
    return ActionSet(
        parse=_parse,
        format_action=_write,
        template=PromptTemplate(lambda mode: system, render_plain_head, render_plain_turn),
        modes=(COORDINATES,),
        with_dialogs=with_dialogs,
    )


UI_TARS = _make_set(_SYSTEM, with_dialogs=_make_set(f"{_SYSTEM} {DIALOG_KEYS}"))
