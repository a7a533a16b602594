"""The prompt version `complete`, word for word where its words carry data."""

import json

import pytest

from tests.records.builders import shot, step
from tests.tables import each
from webgym_cli.agent.prompt import render, render_system_prompt
from webgym_cli.agent.prompts.memory_prompt import TITLE_LIMIT, URL_LIMIT
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.sample import IMAGE
from webgym_cli.records.trajectory import Element, Observation, ParseErrorKind, PromptSpec, PromptVersion

SPEC = PromptSpec(version=PromptVersion.COMPLETE)
MARKS = SPEC.model_copy(update={"interaction_mode": InteractionMode.SET_OF_MARKS})
REMINDER = "Reply with Memory, Progress, Intention, Action and one tool call."
ELEMENTS = (
    Element(id=0, role="button", name="OK", box=(0, 0, 1, 1)),
    Element(id=1, role="textbox", name="Name", value="Ann", box=(0, 0, 1, 1)),
)


def seen(number, **changes):
    return Observation(url=f"http://a/{number}", title=f"Page {number}", screenshot=shot(number)).model_copy(
        update=changes
    )


def reply(memory=(), progress=None, action="I act."):
    return f"Memory: {json.dumps(memory)}\nProgress: {json.dumps(progress or {})}\nIntention: x\nAction: {action}\n"


def prompt(past, spec=SPEC, current=None):
    return render(spec, "Do it.", "http://start/", past, current or seen(len(past)))


def users(value):
    return [message.content for message in value.messages if message.role == "user"]


def test_the_first_prompt_tells_task_and_place():
    assert users(prompt([])) == [
        f'{IMAGE}Task: Do it.\nStart page: http://start/\nPage: "Page 0" at http://a/0\n{REMINDER}'
    ]


@pytest.mark.parametrize("mode", InteractionMode)
def test_the_policy_is_told_the_five_parts_in_order(mode):
    text = render_system_prompt(mode, PromptVersion.COMPLETE)
    places = [text.index(f"\n{name}: ") for name in ("Memory", "Progress", "Intention", "Action")]
    assert [*places, text.index("<tool_call>")] == sorted([*places, text.index("<tool_call>")])


def test_earlier_steps_tell_what_was_done_and_why():
    typed = Action(name=ActionName.TYPE, element_id=1, text="Bob")
    past = [
        step(0, observation=seen(0, elements=ELEMENTS), action=typed, response=reply(action='I type "Bob".')),
        step(1, action=None, parse_error=ParseErrorKind.INVALID_JSON, response="", page_changed=False),
        step(2, page_changed=None),
    ]
    rendered = prompt(past, MARKS.model_copy(update={"history_window": 0}))
    assert users(rendered) == [
        f"{IMAGE}Task: Do it.\nStart page: http://start/\nEarlier steps, which are no longer shown:\n"
        '1. On "Page 0": type [1] "Bob", textbox "Name" = "Ann", "I type \\"Bob\\"." -> page changed\n'
        '2. On "Page 1": no action (invalid_json) -> page unchanged\n'
        '3. On "Page 2": click (10, 20) -> executed\n'
        f'Page: "Page 3" at http://a/3\n{REMINDER}'
    ]


def test_only_the_newest_page_lists_its_elements():
    clicked = Action(name=ActionName.CLICK, element_id=0)
    past = [
        step(0, observation=seen(0, elements=ELEMENTS), action=clicked),
        step(1, observation=seen(1, elements=ELEMENTS), action=Action(name=ActionName.GO_BACK)),
        step(2, observation=seen(2, elements=ELEMENTS), action=Action(name=ActionName.CLICK, element_id=7)),
    ]
    assert users(prompt(past, MARKS, seen(3, elements=ELEMENTS))) == [
        f'{IMAGE}Task: Do it.\nStart page: http://start/\nPage: "Page 0" at http://a/0\nActed on: button "OK"',
        f'{IMAGE}Page: "Page 1" at http://a/1',
        f'{IMAGE}Page: "Page 2" at http://a/2',
        f'{IMAGE}Page: "Page 3" at http://a/3\nElements:\n[0] button "OK"\n[1] textbox "Name" = "Ann"\n{REMINDER}',
    ]


def test_what_came_of_an_action_stands_under_the_next_page():
    past = [
        step(0, action=None, parse_error=ParseErrorKind.NO_TOOL_CALL, page_changed=False),
        step(1, action_error="covered", page_changed=False),
        step(2, page_changed=False),
        step(3),
    ]
    rows = [text.split("\n")[1:] for text in users(prompt(past))[1:]]
    assert rows == [
        ["The last reply was no action (no_tool_call): it must end with exactly one valid tool call."],
        ["The last action failed: covered."],
        ["The last action changed nothing that can be seen."],
        [REMINDER],
    ]


def carried(past, window):
    rendered = prompt(past, SPEC.model_copy(update={"history_window": window}))
    return [line for line in users(rendered)[0].split("\n") if line.startswith("Your ")]


def test_memory_that_leaves_the_window_is_told_at_the_top():
    past = [
        step(0, response=reply(["a"])),
        step(1, response=reply(["a", "b"], {"find b": "done"})),
        step(2, response="?"),
    ]
    kept = ['Your memory then: ["a", "b"]', 'Your progress then: {"find b": "done"}']
    assert carried(past, 0) == kept
    assert carried(past, 1) == kept
    assert carried(past, 2) == []  # the reply that has it is sent in full
    assert carried(past, 4) == []


def test_a_newer_memory_in_the_window_is_enough():
    past = [step(0, response=reply(["a"])), step(1, response="?"), step(2, response=reply(["a", "c"]))]
    assert carried(past, 1) == []
    assert carried(past[:2], 1) == ['Your memory then: ["a"]', "Your progress then: {}"]


def test_a_thought_is_no_memory():
    past = [step(0, response=f"{reply(['a'])}</think>{reply(['b'])}"), step(1, response=reply(["thought"]))]
    spec = SPEC.model_copy(update={"history_window": 0, "thinking": True})
    assert 'Your memory then: ["b"]' in users(prompt(past, spec))[0]


@each("memory", ["{", '["a"', "[" * 5000, '{"a": [}', "\x00", '"'])
def test_malformed_memory_is_told_as_it_is(memory):
    (line, _) = carried([step(0, response=f"Memory: {memory}\nAction: x.")], 0)
    assert line == f"Your memory then: {json.dumps([memory.strip()]) if memory.strip() else '[]'}"


def test_long_titles_and_addresses_are_cut():
    long = seen(0, title="t" * 1000, url="http://a/" + "u" * 1000)
    line = users(prompt([], current=long))[0].split("\n")[2]
    title, url = "t" * (TITLE_LIMIT - 1) + "…", "http://a/" + "u" * (URL_LIMIT - 10) + "…"
    assert line == f'Page: "{title}" at {url}'
