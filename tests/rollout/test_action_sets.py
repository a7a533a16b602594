"""An episode of each action set in a real browser: acted, refused, malformed, ended; stored and rendered again."""

import json

import pytest

from tests.environments.visits import HASTY, small_web
from tests.executable import needs_chromium
from tests.rollout.scripted import ScriptedAgent
from webgym_cli.agent.prompt import render_step
from webgym_cli.records.failure import Stop

pytestmark = pytest.mark.browser
START = "http://lab.test/"


def call(**arguments):
    return f"<tool_call>\n{json.dumps({'name': 'computer_use', 'arguments': arguments})}\n</tool_call>"


# The replies of an episode, what its actions are called here, and its answer.
EPISODES = {
    "full": (
        (
            call(action="scroll", direction="down", amount=200, coordinate=[500, 500]),
            call(action="key", keys=["ctrl", "Home"]),
            call(action="drag", coordinate=[1, 2]),
            call(action="new_tab", url=f"{START}iframe"),
            call(action="switch_tab", tab=7),
            call(action="zoom", region=[0, 0, 300, 300]),
            call(action="switch_tab", tab=0),
            call(action="terminate", text="there is nothing"),
        ),
        ["scroll", "key", None, "new_tab", "switch_tab", "zoom", "switch_tab", "terminate"],
        "N/A",
    ),
    "webgym": (
        (
            call(action="left_click", coordinate=[990, 990]),
            call(action="type", text="x"),
            call(action="type", coordinate=[990, 990], text="x"),
            call(action="answer", text="done"),
        ),
        ["click", None, "type", "answer"],
        "done",
    ),
    "computer_use": (
        (
            call(action="mouse_move", coordinate=[500, 500]),
            call(action="scroll", pixels=-300),
            call(action="scroll"),
            call(action="key", keys=["Escape"]),
            call(action="terminate", status="success"),
        ),
        ["hover", "scroll", None, "key", "answer"],
        "",
    ),
    "ui_tars": (
        (
            "Thought: down\nAction: scroll(point='<point>500 500</point>', direction='down')",
            "Action: click(point='<point>990 990</point>')",
            "Action: click(990, 990)",
            "Action: hotkey(key='ctrl home')",
            "Action: finished(content='done')",
        ),
        ["scroll", "click", None, "key", "answer"],
        "done",
    ),
    "webrl": (
        (
            'do(action="Scroll Down")',
            'do(action="Type", element="1")',
            'do(action="Press Enter")',
            'do(action="Switch Tab", argument="4")',
            'exit(message="done")',
        ),
        ["scroll", None, "Press Enter", "Switch Tab", "answer"],
        "done",
    ),
}
REFUSED = {"full": [4], "webgym": [2], "computer_use": [], "ui_tars": [], "webrl": [3]}


@pytest.fixture(scope="module")
async def web():
    needs_chromium()
    async with small_web("context_config.prompt_version=webrl") as result:
        yield result


@pytest.mark.parametrize("version", EPISODES)
async def test_an_episode_of_a_set(version, web, world):
    replies, names, answer = EPISODES[version]
    mode = "set_of_marks" if version == "webrl" else "coordinates"
    world.write_tasks([{"id": "a", "instruction": "Look.", "start_url": START, "environment": "web"}])
    given = (f"context_config.prompt_version={version}", f"context_config.interaction_mode={mode}")
    settings = world.load(*HASTY, *given)
    web.pool.mode, web.pool.as_text = settings.context_config.interaction_mode, version == "webrl"
    await world.roll(1, agent=ScriptedAgent(replies), pool=web.pool)
    (stored,) = world.stored
    assert (stored.outcome.stop, stored.outcome.answer, stored.outcome.failure) == (Stop.ANSWERED, answer, None)
    assert [step.response for step in stored.steps] == list(replies)
    assert [step.action and step.action.name.value for step in stored.steps] == names
    assert [step.index for step in stored.steps if step.action_error] == REFUSED[version]
    assert all(bool(step.parse_detail) == (step.action is None) for step in stored.steps)
    for step in stored.steps:
        assert render_step(stored, step.index).digest == step.prompt_digest
    wrong = names.index(None)
    assert stored.steps[wrong].parse_detail in render_step(stored, wrong + 1).messages[-1].content
    if version == "full":
        assert [len(step.observation.tabs) for step in stored.steps] == [0, 0, 0, 0, 2, 2, 2, 2]
        assert "enlarged" in stored.steps[6].observation.notices[0]
