"""The action sets of a page: what each is told, reads and writes. Shapes of calls as the systems document them."""

import json

import pytest

from tests.records.builders import shot, step
from tests.tables import each
from webgym_cli.agent.actions.action_sets import ACTION_SETS, find_action_set
from webgym_cli.agent.actions.parse import ParseError, parse_web_action
from webgym_cli.agent.forms.tools import describe_action, render_web_action
from webgym_cli.agent.forms.web_actions import BASIC, COMPUTER_USE, FULL, FULL_WITH_DIALOGS, WEBGYM, add_actions
from webgym_cli.agent.prompt import render
from webgym_cli.config.load import load
from webgym_cli.environments.registry import check_tasks
from webgym_cli.errors import SettingsError
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Observation, ParseErrorKind, PromptSpec, Tab

MARKS, POINTS = InteractionMode.SET_OF_MARKS, InteractionMode.COORDINATES
SETS = {"basic": BASIC, "full": FULL, "webgym": WEBGYM, "computer_use": COMPUTER_USE}
SETS |= {f"more {name}": add_actions(actions) for name, actions in SETS.items()}
MODES = [(name, mode) for name, actions in SETS.items() for mode in actions.functions]
HERE = {"here": True}
WEB_ACTIONS = {*ActionName} - {ActionName.CALL}
AT, ONE = {"coordinate": [1, 2]}, {"element_id": 1}
WAY = [[0, 1000], [250.5, 3]]


def same(action, **given):
    """Return a call and the action of its name that has the same arguments."""
    return {"action": action, **given}, {"name": action, **given}


def turned(action, given, name, **fields):
    """Return a call, and the action of another name, or with further fields, that it is."""
    return {"action": action, **given}, {"name": name, **given, **fields}


def click(action, **fields):
    """Return a call at a point and the kind of click that it is."""
    return turned(action, AT, "click", **fields)


# The calls of each set -> the action that they are.
CALLS = {
    ("full", POINTS): [
        click("double_click", clicks=2),
        click("triple_click", clicks=3),
        click("middle_click", button="middle"),
        same("hover", **AT),
        same("drag", **AT, to_coordinate=[3, 4]),
        same("scroll", **AT, direction="left", amount=250),
        ({"action": "zoom", "region": [1, 2, 3, 4]}, {"name": "zoom", "coordinate": (1, 2), "to_coordinate": (3, 4)}),
    ],
    ("full", MARKS): [
        same("click", **ONE, modifiers=["Control"]),
        turned("right_click", ONE, "click", button="right"),
        same("drag", **ONE, to_element_id=2),
        turned("type", {"text": "x"}, "type", append=True, **HERE),
        same("type", **ONE, text="x", append=True, submit=True),
        ({"action": "type", **ONE, "text": "x", "append": False}, {"name": "type", **ONE, "text": "x"}),
        same("key", keys=["Control", "a"]),
        same("key", **ONE, keys=["Enter"]),
        same("select_option", **ONE, text="Rome"),
        same("upload_file", **ONE, text="a.txt"),
        same("scroll", direction="down"),
        same("zoom", **ONE),
        *(same(name) for name in ("go_forward", "reload", "new_tab", "close_tab")),
        same("new_tab", url="http://a/"),
        same("switch_tab", tab=1),
        same("terminate", text="no shop"),
    ],
    ("webgym", POINTS): [turned("type", AT | {"text": "x"}, "type", submit=True), click("left_click")],
    ("webgym", MARKS): [turned("type", ONE | {"text": "x"}, "type", submit=True), same("hover", **ONE)],
    ("computer_use", POINTS): [
        turned("left_click", {"coordinate": [500, 20]}, "click"),
        turned("left_click", {}, "click", **HERE),
        *(click(f"{button}_click", button=button) for button in ("right", "middle")),
        *(click(f"{word}_click", clicks=clicks) for word, clicks in (("double", 2), ("triple", 3))),
        turned("mouse_move", AT, "hover"),
        ({"action": "left_click_drag", **AT}, {"name": "drag", "to_coordinate": (1, 2), **HERE}),
        same("key", keys=["ctrl", "c"]),
        turned("type", {"text": "a\nb"}, "type", append=True, **HERE),
        ({"action": "scroll", "pixels": -300}, {"name": "scroll", "direction": "down", "amount": 300, **HERE}),
        ({"action": "scroll", "pixels": 300, **AT}, {"name": "scroll", "direction": "up", "amount": 300, **AT}),
        ({"action": "hscroll", "pixels": 50}, {"name": "scroll", "direction": "right", "amount": 50, **HERE}),
        ({"action": "wait", "time": 2}, {"name": "wait", "seconds": 2}),
        ({"action": "terminate", "status": "failure"}, {"name": "terminate"}),
        same("answer", text="42"),
    ],
}
for name, mode in [(name, mode) for name, mode in MODES if name.startswith("more ")]:
    place, to = (ONE, {"to_element_id": 1}) if mode is MARKS else (AT, {"to_coordinate": [3, 4]})
    CALLS[name, mode] = [
        turned("long_press", place, "click", seconds=1.0),
        turned("wait_for", {"text": "Saved"}, "wait", seconds=10.0),
        ({"action": "wait_for", "text": "Saved", "time": 3}, {"name": "wait", "text": "Saved", "seconds": 3.0}),
    ]
    within = ONE | {"position": [400, 600]}
    if mode is MARKS:
        CALLS[name, mode] += [
            same("click", **within),
            same("hover", **within),
            turned("long_press", within, "click", seconds=1.0),
            same("scroll", direction="up", **within),
        ]
    if name != "more computer_use":
        CALLS[name, mode] += [
            same("drag", **place, **to),
            same("drag", **place, **to, path=WAY),
            same("key", keys=["Control", "c"]),
            same("upload_file", **place, text="a.txt"),
        ]
    if name != "more computer_use" and mode is MARKS:
        CALLS[name, mode].append(same("drag", **within, **to, to_position=[0, 1000], path=WAY))
CALLS["more computer_use", POINTS] += [
    same("upload_file", **AT, text="a.txt"),
    ({"action": "left_click_drag", **AT, "path": WAY}, {"name": "drag", "to_coordinate": (1, 2), "path": WAY, **HERE}),
]
for mode, place in ((MARKS, ONE), (POINTS, AT)):
    CALLS["more basic", mode] += [
        same("scroll", direction="down"),
        same("scroll", direction="up", **place),
        same("hover", **place),
    ]
CASES = [(name, mode, *case) for (name, mode), cases in CALLS.items() for case in cases]


def parse(name, mode, arguments):
    actions = SETS[name]
    call = json.dumps({"name": actions.functions[mode], "arguments": arguments})
    return parse_web_action(f"<tool_call>\n{call}\n</tool_call>", mode, actions=actions)


@each(("name", "mode", "arguments", "fields"), CASES)
def test_a_call_is_an_action_and_is_written_again(name, mode, arguments, fields):
    action = Action.model_validate(fields)
    assert parse(name, mode, arguments) == action
    assert parse_web_action(render_web_action(action, mode, SETS[name]), mode, actions=SETS[name]) == action


@each(("name", "mode"), MODES)
def test_the_schema_offers_exactly_what_is_read(name, mode):
    actions = SETS[name]
    function = actions.build_schema(mode)["function"]
    properties = dict(function["parameters"]["properties"])
    assert function["name"] == actions.functions[mode]
    assert properties.pop("action")["enum"] == list(actions.forms[mode])
    assert set(properties) == {
        part.strip("?") for form in actions.forms[mode].values() for part in form.arguments.split()
    }
    for called, form in actions.forms[mode].items():
        others = set(actions.arguments) - {part.strip("?") for part in form.arguments.split()}
        for other in others:
            wrong = parse(name, mode, {"action": called, other: None})
            assert isinstance(wrong, ParseError) and other in wrong.detail


DRAG = {"action": "drag", "element_id": 1, "to_element_id": 1}


@each(
    ("name", "mode", "arguments", "kind", "why"),
    [
        ("full", POINTS, {"action": "drag", "coordinate": [1, 2]}, ParseErrorKind.INVALID_ARGUMENTS, "to_coordinate"),
        ("full", POINTS, {"action": "zoom", "region": [1, 2]}, ParseErrorKind.INVALID_ARGUMENTS, "four"),
        ("full", MARKS, {"action": "scroll", "direction": "in"}, ParseErrorKind.INVALID_ARGUMENTS, "up, down, left"),
        ("full", MARKS, {"action": "switch_tab", "tab": -1}, ParseErrorKind.INVALID_ARGUMENTS, "greater"),
        ("full", MARKS, {"action": "left_click"}, ParseErrorKind.UNKNOWN_ACTION, "left_click"),
        ("webgym", POINTS, {"action": "type", "text": "x"}, ParseErrorKind.INVALID_ARGUMENTS, "coordinate"),
        ("webgym", MARKS, {"action": "key", "keys": ["a"]}, ParseErrorKind.UNKNOWN_ACTION, "key"),
        ("full", MARKS, {**DRAG, "path": [[1, 2]]}, ParseErrorKind.INVALID_ARGUMENTS, "drag has no argument path"),
        *(
            ("more full", MARKS, {**DRAG, "path": path}, ParseErrorKind.INVALID_ARGUMENTS, why)
            for path, why in (
                ("1,2", "valid tuple"),
                ([], "at least 1 item"),
                ([[1]], "required"),
                ([[1, 2, 3]], "at most 2 items"),
                ([["1", 2]], "valid number"),
                ([[1, None]], "valid number"),
                ([[1, 1001]], "0 to 1000"),
                ([1, 2], "valid tuple"),
                ([[1, 2]] * 51, "at most 50 items"),
            )
        ),
        ("computer_use", POINTS, {"action": "scroll"}, ParseErrorKind.INVALID_ARGUMENTS, "pixels"),
        ("computer_use", POINTS, {"action": "scroll", "pixels": 0}, ParseErrorKind.INVALID_ARGUMENTS, "pixels"),
        ("computer_use", POINTS, {"action": "scroll", "pixels": "5"}, ParseErrorKind.INVALID_ARGUMENTS, "pixels"),
        ("computer_use", POINTS, {"action": "terminate"}, ParseErrorKind.INVALID_ARGUMENTS, "status"),
        ("computer_use", POINTS, {"action": "terminate", "status": []}, ParseErrorKind.INVALID_ARGUMENTS, "failure"),
        ("computer_use", POINTS, {"action": "key", "keys": "ctrl"}, ParseErrorKind.INVALID_ARGUMENTS, "tuple"),
        ("computer_use", POINTS, {"action": "wait", "time": 99}, ParseErrorKind.INVALID_ARGUMENTS, "60"),
    ],
)
def test_a_malformed_call_says_why(name, mode, arguments, kind, why):
    wrong = parse(name, mode, arguments)
    assert isinstance(wrong, ParseError) and wrong.kind is kind
    assert why in wrong.detail


def test_full_has_everything_and_the_others_do_not():
    assert [name for name in WEB_ACTIONS if not FULL_WITH_DIALOGS.has(name)] == []
    assert {name for name in WEB_ACTIONS if not FULL.has(name)} == {ActionName.ACCEPT_DIALOG, ActionName.DISMISS_DIALOG}
    assert not BASIC.has(ActionName.KEY) and not COMPUTER_USE.has(ActionName.NAVIGATE)
    ended = parse("computer_use", POINTS, {"action": "terminate", "status": "success"})
    assert ended == Action(name=ActionName.ANSWER, text="")
    action = Action(name=ActionName.CLICK, element_id=1, button="right", modifiers=("Shift",))
    assert describe_action(action) == 'click [1] button="right" modifiers=["Shift"]'


def test_what_a_set_lacks_is_not_written():
    with pytest.raises(ValueError, match="no such action"):
        render_web_action(Action(name=ActionName.KEY, keys=("a",)), POINTS, BASIC)
    with pytest.raises(ValueError, match="no such action"):
        render_web_action(Action(name=ActionName.TYPE, element_id=1, text="x", append=True), MARKS, WEBGYM)
    # WebGym's typing can't leave Enter out: an expert's plain typing becomes it.
    assert "type" in render_web_action(Action(name=ActionName.TYPE, element_id=1, text="x"), MARKS, WEBGYM)


@each("version", ["full", "webgym", "computer_use"])
def test_a_prompt_names_the_actions_why_the_last_was_none_and_the_tabs(version):
    wrong = step(0, action=None, parse_error=ParseErrorKind.INVALID_ARGUMENTS, parse_detail="wait lacks time <image>")
    tabs = (Tab(url="http://a/", title="A"), Tab(url="http://b/", title="B", current=True))
    seen = Observation(url="http://b/", screenshot=shot(1), tabs=tabs)
    system, *_, user = (one.content for one in render(PromptSpec(version=version), "", "", (wrong,), seen).messages)
    assert json.dumps(SETS[version].build_schema(POINTS)) in system
    assert "invalid_arguments: wait lacks time" in user and user.count("<image>") == 1
    assert ("1: B (shown)" in user) == (version == "full")


@each("version", ["full", "full_vanilla"])
def test_dialogs_are_answered_only_where_they_are_left_to_the_policy(version):
    plain, open_to_policy = PromptSpec(version=version), PromptSpec(version=version, dialogs=True)

    def read(spec, response):
        return find_action_set(spec).parse(response, spec, truncated=False, max_calls=1)

    for arguments in ({"action": "accept_dialog", "text": "Zoe"}, {"action": "dismiss_dialog"}):
        response = f"<tool_call>{json.dumps({'name': 'computer_use', 'arguments': arguments})}</tool_call>"
        action = Action.model_validate(same(**arguments)[1])
        assert read(plain, response).kind is ParseErrorKind.UNKNOWN_ACTION
        assert read(open_to_policy, response) == action
        assert read(open_to_policy, find_action_set(open_to_policy).format_action(action, POINTS)) == action


def system_prompt(version, **more):
    spec = PromptSpec(version=version, **more)
    return render(spec, "Do it.", "http://a/", (), Observation(url="http://a/")).messages[0].content


@each("version", ["full", "full_vanilla", "computer_use", "ui_tars"])
def test_the_system_prompt_says_how_dialogs_are_answered_only_where_it_is_asked(version):
    assert "dialog is open" in system_prompt(version, dialogs=True)
    plain = system_prompt(version, dialogs=False)
    assert "accept_dialog" not in plain and "dialog is open" not in plain


@each("version", ["vanilla", "full", "webgym", "computer_use"])
def test_more_actions_are_another_prompt_and_leave_the_usual_one(version):
    usual = system_prompt(version)
    assert usual == system_prompt(version, more_actions=False) and "long_press" not in usual
    assert "wait_for" in system_prompt(version, more_actions=True)


@each(
    ("name", "mode", "arguments"),
    [
        ("full", MARKS, {"action": "click", "element_id": 1, "position": [1, 1]}),
        ("more full", POINTS, {"action": "left_click", "coordinate": [1, 1], "position": [1, 1]}),
        ("more full", MARKS, {"action": "click", "element_id": 1, "position": [1, 1001]}),
        ("more full", MARKS, {"action": "scroll", "direction": "up", "position": [1, 1]}),
        ("more full", MARKS, {"action": "drag", "element_id": 1, "to_position": [1, 1]}),
        ("more full", MARKS, {"action": "type", "element_id": 1, "text": "a", "position": [1, 1]}),
    ],
)
def test_a_position_is_within_a_marked_element(name, mode, arguments):
    result = parse(name, mode, arguments)
    assert isinstance(result, ParseError) and result.kind is ParseErrorKind.INVALID_ARGUMENTS


TASK = Task(id="a", environment="web", start_url="https://a.example", instruction="Go.")


@each(
    ("version", "setting", "words"),
    [
        ("webrl", "more_actions=true", "more_actions"),
        ("ui_tars", "more_actions=true", "more_actions"),
        ("computer_use", "interaction_mode=set_of_marks", "set_of_marks"),
    ],
)
def test_what_a_set_lacks_is_refused_before_an_episode(version, setting, words):
    settings = load(overrides=[f"context_config.prompt_version={version}", f"context_config.{setting}"])
    with pytest.raises(SettingsError, match=words):
        check_tasks(settings, [TASK])


@each("version", ["computer_use", "webrl"])
def test_a_set_without_marks_needs_no_other_setting(version):
    check_tasks(load(overrides=[f"context_config.prompt_version={version}"]), [TASK])
    assert ACTION_SETS.find("computer_use").modes == (POINTS,)
