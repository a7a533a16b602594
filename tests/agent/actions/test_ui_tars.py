"""UI-TARS' calls: what is read as which action, what is refused, and what an expert writes."""

import pytest

from tests.tables import each
from webgym_cli.agent.actions.action_sets import ACTION_SETS
from webgym_cli.agent.actions.parse import ParseError
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.trajectory import ParseErrorKind, PromptSpec

SET = ACTION_SETS.find("ui_tars")
SPEC = PromptSpec(version="ui_tars")
AT = {"coordinate": (500.0, 300.5)}
READ = {
    "click(point='<point>500 300.5</point>')": {"name": "click", **AT},
    "click(start_box='(500,300.5)')": {"name": "click", **AT},
    "click(start_box='<|box_start|>(500, 300.5)<|box_end|>')": {"name": "click", **AT},
    "left_double(point='<point>500 300.5</point>')": {"name": "click", "clicks": 2, **AT},
    "right_single(point='<point>500 300.5</point>')": {"name": "click", "button": "right", **AT},
    "drag(start_point='<point>500 300.5</point>', end_point='<point>0 1000</point>')": {
        "name": "drag", "to_coordinate": (0.0, 1000.0), **AT,
    },
    "drag(start_box='(500,300.5)', end_box='(0,1000)')": {"name": "drag", "to_coordinate": (0.0, 1000.0), **AT},
    "long_press(point='<point>500 300.5</point>')": {"name": "click", "seconds": 1.0, **AT},
    "hotkey(key='ctrl a')": {"name": "key", "keys": ("ctrl", "a")},
    r"type(content='it\'s \"so\"\n')": {"name": "type", "text": 'it\'s "so"\n', "here": True, "append": True},
    "scroll(point='<point>500 300.5</point>', direction='left')": {"name": "scroll", "direction": "left", **AT},
    "wait()": {"name": "wait", "seconds": 5.0},
    "finished(content='42')": {"name": "answer", "text": "42"},
}  # fmt: skip


def parse(response, *, truncated=False):
    return SET.parse(response, SPEC, truncated=truncated, max_calls=1)


@each("call", READ)
def test_a_call_is_read_as_its_action_and_written_the_same_way(call):
    action = parse(f"Thought: I see it.\nAction: {call}")
    assert action == Action.model_validate(READ[call])
    assert parse(SET.format_action(action, InteractionMode.COORDINATES)) == action


@each(
    ("response", "kind", "words"),
    [
        ("I click.", ParseErrorKind.NO_TOOL_CALL, "Action:"),
        ("Action: call_user()", ParseErrorKind.UNKNOWN_ACTION, "'call_user'"),
        ("Action: click(500, 300)", ParseErrorKind.INVALID_ARGUMENTS, "named arguments"),
        ("Action: click(point='<point>500</point>')", ParseErrorKind.INVALID_ARGUMENTS, "no point"),
        ("Action: click(point='<point>500 3000</point>')", ParseErrorKind.INVALID_ARGUMENTS, "0 to 1000"),
        ("Action: click()", ParseErrorKind.INVALID_ARGUMENTS, "lacks the argument point"),
        ("Action: wait(seconds='3')", ParseErrorKind.INVALID_ARGUMENTS, "no argument"),
        ("Action: scroll(point='<point>1 1</point>', direction='in')", ParseErrorKind.INVALID_ARGUMENTS, "'up'"),
        ("Action: type(content=open('x'))", ParseErrorKind.INVALID_ARGUMENTS, "no text"),
        ("Action: type(content='it's')", ParseErrorKind.INVALID_ARGUMENTS, "quoted"),
        ("Action: wait()\nAction: wait()", ParseErrorKind.INVALID_ARGUMENTS, "quoted"),
    ],
)
def test_what_is_no_call_of_the_set_is_said(response, kind, words):
    parsed = parse(response)
    assert isinstance(parsed, ParseError) and parsed.kind is kind
    assert words in parsed.detail


def test_a_cut_reply_is_told_apart_and_a_thought_is_no_part_of_a_call():
    for cut in ("Thought: I", "Action: type(content='abc"):
        assert parse(cut, truncated=True).kind is ParseErrorKind.TRUNCATED
    spec = SPEC.model_copy(update={"thinking": True})
    response = "<think>Action: wait()</think>\nAction: finished(content='1')"
    assert SET.parse(response, spec, truncated=False, max_calls=1).name is ActionName.ANSWER


def test_what_the_set_has_no_call_for_can_t_be_written():
    for fields in ({"name": "navigate", "url": "https://a.com/"}, {"name": "click", "element_id": 3}):
        with pytest.raises(ValueError, match="no such action"):
            SET.format_action(Action.model_validate(fields), InteractionMode.COORDINATES)
    assert SET.modes == (InteractionMode.COORDINATES,)
