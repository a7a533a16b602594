import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import each
from webgym_cli.agent.actions.parse import ParseError, parse_web_action
from webgym_cli.agent.forms.tools import render_web_action
from webgym_cli.agent.forms.web_actions import BASIC
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.trajectory import ParseErrorKind as Kind

MARKS, POINTS = InteractionMode.SET_OF_MARKS, InteractionMode.COORDINATES


def call(arguments, name="web_interaction"):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


CLICK = call({"action": "click", "element_id": 3})
CLICKED = Action(name=ActionName.CLICK, element_id=3)

NOT_ACTIONS = {
    "nothing": ("", Kind.NO_TOOL_CALL),
    "prose": ("I click [3].", Kind.NO_TOOL_CALL),
    "bare JSON": (json.dumps({"name": "web_interaction", "arguments": {}}), Kind.NO_TOOL_CALL),
    "an open call": (CLICK.removesuffix("</tool_call>"), Kind.NO_TOOL_CALL),
    "other tags": (CLICK.replace("tool_call", "TOOL_CALL"), Kind.NO_TOOL_CALL),
    "only thought": (f"<think>{CLICK}</think> I am done.", Kind.NO_TOOL_CALL),
    "only thought, unfinished": (f"<think>First I could {CLICK} but", Kind.NO_TOOL_CALL),
    "two calls": (CLICK + CLICK, Kind.SEVERAL_TOOL_CALLS),
    "two calls, one bad": (CLICK + "<tool_call>x</tool_call>", Kind.SEVERAL_TOOL_CALLS),
    "a thought after the call": (f"{CLICK}<think>{CLICK}</think>", Kind.SEVERAL_TOOL_CALLS),
    "an empty call": ("<tool_call></tool_call>", Kind.INVALID_JSON),
    "a nested call": (f"<tool_call>{CLICK}</tool_call>", Kind.INVALID_JSON),
    "half an object": ('<tool_call>{"name": "web_interaction"</tool_call>', Kind.INVALID_JSON),
    "Python": ("<tool_call>{'name': 'web_interaction'}</tool_call>", Kind.INVALID_JSON),
    "two objects": ("<tool_call>{}{}</tool_call>", Kind.INVALID_JSON),
    "a deep object": (f"<tool_call>{'[' * 100_000}</tool_call>", Kind.INVALID_JSON),
    "a number of 5000 digits": (f"<tool_call>{'9' * 5000}</tool_call>", Kind.INVALID_JSON),
    "a list": (f"<tool_call>[{json.dumps({'name': 'web_interaction'})}]</tool_call>", Kind.UNKNOWN_FUNCTION),
    "null": ("<tool_call>null</tool_call>", Kind.UNKNOWN_FUNCTION),
    "another function": (call({"action": "click"}, "computer_use"), Kind.UNKNOWN_FUNCTION),
    "a list as function": (call({"action": "click"}, ["web_interaction"]), Kind.UNKNOWN_FUNCTION),
    "arguments as text": (call('{"action": "go_back"}'), Kind.INVALID_ARGUMENTS),
    "arguments as list": (call(["go_back"]), Kind.INVALID_ARGUMENTS),
    "no action": (call({"element_id": 3}), Kind.UNKNOWN_ACTION),
    "an unknown action": (call({"action": "explode"}), Kind.UNKNOWN_ACTION),
    "the other mode's action": (call({"action": "left_click", "element_id": 3}), Kind.UNKNOWN_ACTION),
    "an action in capitals": (call({"action": "Click", "element_id": 3}), Kind.UNKNOWN_ACTION),
    "an object as action": (call({"action": {"name": "click"}}), Kind.UNKNOWN_ACTION),
    "no target": (call({"action": "click"}), Kind.INVALID_ARGUMENTS),
    "null as target": (call({"action": "click", "element_id": None}), Kind.INVALID_ARGUMENTS),
    "text as target": (call({"action": "click", "element_id": "3"}), Kind.INVALID_ARGUMENTS),
    "a truth as target": (call({"action": "click", "element_id": True}), Kind.INVALID_ARGUMENTS),
    "a fraction as target": (call({"action": "click", "element_id": 3.0}), Kind.INVALID_ARGUMENTS),
    "a list as target": (call({"action": "click", "element_id": [3]}), Kind.INVALID_ARGUMENTS),
    "a negative target": (call({"action": "click", "element_id": -1}), Kind.INVALID_ARGUMENTS),
    "the other mode's target": (call({"action": "click", "coordinate": [1, 2]}), Kind.INVALID_ARGUMENTS),
    "both targets": (call({"action": "click", "element_id": 3, "coordinate": [1, 2]}), Kind.INVALID_ARGUMENTS),
    "a key too many": (CLICK.replace('"arguments"', '"note": 1, "arguments"'), Kind.INVALID_ARGUMENTS),
    "text after the object": (CLICK.replace("\n</tool_call>", " then\n</tool_call>"), Kind.INVALID_JSON),
    "an argument too many": (call({"action": "click", "element_id": 3, "text": "x"}), Kind.INVALID_ARGUMENTS),
    "a number as text": (call({"action": "answer", "text": 5}), Kind.INVALID_ARGUMENTS),
    "a list as text": (call({"action": "answer", "text": ["a"]}), Kind.INVALID_ARGUMENTS),
    "half a character": (call({"action": "answer", "text": "\ud800"}), Kind.INVALID_ARGUMENTS),
    "sideways": (call({"action": "scroll", "direction": "left"}), Kind.INVALID_ARGUMENTS),
    "for ever": (call({"action": "wait", "time": 61}), Kind.INVALID_ARGUMENTS),
    "an infinite time": (call({"action": "wait", "time": float("inf")}), Kind.INVALID_ARGUMENTS),
    "no number as time": (call({"action": "wait", "time": float("nan")}), Kind.INVALID_ARGUMENTS),
    "a time of 400 digits": (call({"action": "wait", "time": 10**400}), Kind.INVALID_ARGUMENTS),
    "text as time": (call({"action": "wait", "time": "5"}), Kind.INVALID_ARGUMENTS),
}


@each(("response", "kind"), NOT_ACTIONS.values())
def test_what_is_no_action_says_why(response, kind):
    web_action = parse_web_action(response, MARKS)
    assert isinstance(web_action, ParseError) and web_action.kind is kind


BAD_POINTS = [[1], [1, 2, 3], [1, 1001], [-1, 2], ["1", "2"], [True, 2], [[1], 2], "1,2", {"x": 1}, [1e999, 2], None]


@each("point", [*BAD_POINTS, [10**400, 1]])
def test_a_bad_point_is_no_action(point):
    web_action = parse_web_action(call({"action": "left_click", "coordinate": point}, "computer_use"), POINTS)
    assert isinstance(web_action, ParseError) and web_action.kind is Kind.INVALID_ARGUMENTS


@each(
    "response",
    [
        CLICK,
        f"The button is [3].\n{CLICK}\nThat is all.",
        f"<think>I could {call({'action': 'go_back'})}, no.</think>\n{CLICK}",
        f"  <think></think>{CLICK}",
        f'Memory: ["<tool_call", {{"a": 1}}]\nProgress: {{half\nIntention:\nAction: I click.\n{CLICK}',
        CLICK.replace("\n", ""),
    ],
)
def test_one_call_is_read_wherever_it_stands(response):
    assert parse_web_action(response, MARKS) == CLICKED


def test_no_thought_of_a_thinking_model_acts():
    """tests/agent/forms/test_reasoning.py has every form of a thought."""
    assert parse_web_action(f"I could {CLICK}.\n</think>\n\n{CLICK}", MARKS, thinking=True) == CLICKED
    assert parse_web_action(f"I do {CLICK}", MARKS, thinking=True).kind is Kind.NO_TOOL_CALL


def test_a_cut_response_says_so_unless_its_call_is_whole():
    assert parse_web_action(CLICK, MARKS, truncated=True) == CLICKED
    assert parse_web_action(CLICK[:-5], MARKS, truncated=True).kind is Kind.TRUNCATED
    for text in (f"First {CLICK}", f"<think>{CLICK}", "<think>a</think>I click"):
        assert parse_web_action(text, MARKS, truncated=True, thinking=True).kind is Kind.TRUNCATED


def test_a_point_may_have_whole_numbers_or_fractions():
    response = call({"action": "left_click", "coordinate": [12, 34.5]}, "computer_use")
    assert parse_web_action(response, POINTS) == Action(name=ActionName.CLICK, coordinate=(12, 34.5))


TRICKY = ["</tool_call>", "<tool_call>", "<think>", "</think>", "\u2028", "\\", '"', "<image>", "<|im_end|>", "\x00"]
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(TRICKY)
axis = st.floats(0, 1000) | st.integers(0, 1000)
targets = {
    MARKS: st.fixed_dictionaries({"element_id": st.integers(0, 10**9)}),
    POINTS: st.fixed_dictionaries({"coordinate": st.tuples(axis, axis)}),
}


def actions(mode):
    target = targets[mode]
    kinds = {
        ActionName.CLICK: target,
        ActionName.HOVER: target,
        ActionName.TYPE: st.tuples(target, text).map(lambda pair: {**pair[0], "text": pair[1]}),
        ActionName.SCROLL: st.sampled_from([{"direction": "up"}, {"direction": "down"}]),
        ActionName.WAIT: st.fixed_dictionaries({"seconds": st.floats(0, 60)}),
        ActionName.GO_BACK: st.just({}),
        ActionName.NAVIGATE: st.fixed_dictionaries({"url": text}),
        ActionName.ANSWER: st.fixed_dictionaries({"text": text}),
    }
    names = {form.name for form in BASIC.forms[mode].values()}
    return st.one_of(*[kinds[name].map(lambda values, name=name: Action(name=name, **values)) for name in names])


@pytest.mark.parametrize("mode", InteractionMode)
@given(data=st.data())
def test_what_is_rendered_is_read_back(mode, data):
    action = data.draw(actions(mode))
    assert parse_web_action(f"So:\n{render_web_action(action, mode)}", mode) == action


@given(text | st.text("<>/tool_call{}thinkname:\"' ", max_size=200))
def test_no_text_breaks_the_parser(response):
    for mode in InteractionMode:
        for thinking in (False, True):
            assert isinstance(parse_web_action(response, mode, thinking=thinking), ParseError)
