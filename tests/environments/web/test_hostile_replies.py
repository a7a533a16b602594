"""Random hostile replies of a policy, through the real parser and the real browser: none ends its episode."""

import json
import random

import pytest

from tests.environments.visits import small_web
from webgym_cli.agent.actions.action_sets import find_action_set
from webgym_cli.agent.actions.parse import ParseError
from webgym_cli.agent.forms import web_actions
from webgym_cli.records.action import ActionName, InteractionMode
from webgym_cli.records.trajectory import Observation, PromptSpec, Step

pytestmark = pytest.mark.browser

START = "http://odd.test/all"
PAGE = """<!doctype html><title>all</title><button>b</button><input aria-label=t><select><option>1<option>2</select>
<input type=file aria-label=f><a href=/all target=_blank>new</a><a href=/paper.pdf target=_blank>paper</a><textarea>
</textarea><input type=date><button onclick='prompt(1)'>ask</button><div style='height: 3000px'></div>"""
TEXTS = (
    *("", "\0", "\ud800", "a\udc80b", "é", "中", "\x1b[2J\x9f", "a" * 300, "x" * 100_000, "../../etc/passwd", "1"),
    *("\n", "Enter", "ctrl+a", "F13", "++", "\u202e", START, "javascript:alert(1)", "http://[", "http://\0"),
    *("chrome://crash", "data:text/html,x", "http://odd.test:99999/", "about:blank", "//odd.test", "http://."),
)
NUMBERS = [0, 1, -1, 3, 500, 1000, 1001, 1e308, 2**63, 10**30, float("nan"), float("inf"), 0.5, True]
VALID = {
    "coordinate": [[0, 0], [20, 20], [999.5, 1000]],
    "region": [[0, 0, 0, 0], [0, 1000, 500, 2]],
    "element_id": [*range(9), 10**12],
    "direction": ["up", "down", "left", "right"],
    "amount": [1, 9999.9, 1e-9],
    "time": [0, 0.01],
    "tab": [0, 1, 10**20],
    "submit": [True],
    "append": [True],
}


def draw_reply(rng: random.Random, mode: InteractionMode) -> str:
    """Draw a call whose arguments are mostly of the right kind, so that it reaches the browser."""
    forms, arguments = web_actions.FULL.forms[mode], {}
    name = rng.choice(sorted(forms))
    for argument in (word.rstrip("?") for word in forms[name].arguments.split()):
        valid = VALID.get(argument.removeprefix("to_"), TEXTS)
        drawn = [rng.choice(TEXTS), "a"] if argument in ("keys", "modifiers") else rng.choice(valid)
        arguments[argument] = drawn if rng.random() < 0.9 else rng.choice([*TEXTS, *NUMBERS, None, [], {}])
    call = {"name": web_actions.FUNCTIONS[mode], "arguments": {"action": name, **arguments}}
    return f"<tool_call>{json.dumps(call)}</tool_call>"


@pytest.mark.parametrize("mode", InteractionMode)
async def test_no_reply_ends_its_episode(chromium, mode: InteractionMode):
    spec, rng = PromptSpec(version="full_vanilla", interaction_mode=mode), random.Random(35)
    async with small_web("browser.max_idle_wait=0.1", mode=mode) as web:
        web.odd.pages["/all"] = PAGE
        visit = web.visit()
        await visit.open(START)
        for _ in range(25):
            action = find_action_set(spec).parse(draw_reply(rng, mode), spec, truncated=False, max_calls=1)
            if isinstance(action, ParseError) or action.name in (ActionName.ANSWER, ActionName.TERMINATE):
                continue
            result = await visit.environment.step(action)
            seen = Observation(url=result.view.url, title=result.view.title, notices=result.view.notices)
            step = Step(index=0, observation=seen, response="", action=action, prompt_digest="")
            assert step.model_copy(update={"action_error": result.action_error}).to_storable().model_dump_json()
        await visit.environment.close()
