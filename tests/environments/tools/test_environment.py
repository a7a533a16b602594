import asyncio
import base64
import json
import threading
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image as pillow

from tests.agent.policy_host import Host
from webgym_cli.config.load import load
from webgym_cli.config.policy_config import ImageSettings
from webgym_cli.environments.base import RawObservation
from webgym_cli.environments.registry import check_tasks, find_environment, require_experts
from webgym_cli.environments.tools.question_answer import load_image, read_question
from webgym_cli.errors import BoundaryError, SettingsError, UsageError
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Task
from webgym_cli.records.tool import ToolCall
from webgym_cli.scoring.registry import REWARDS
from webgym_cli.tasks.files import place_files
from webgym_cli.tasks.registry import BadTaskError

MINE = """
import threading, time
from webgym_cli.scoring import reward
from webgym_cli.tools import EpisodeContext, tool

SEEN = []

@reward
def all_of_it(final_response, trajectory, id, question, answer, level=0, **rest):
    SEEN.append((final_response, [message["role"] for message in trajectory], id, question, answer, level, rest))
    return {"reward": 0.5, "length": len(trajectory)}

@reward
async def later(final_response): return 3

@reward
def failing(final_response): raise KeyError("oops")

@reward
def nothing(final_response): return None

@reward
def endless(final_response):
    while True: pass

@tool(fields=["odd"])
def add(odd: list[int], context: EpisodeContext) -> str:
    "Change the record."
    odd.append(2)
    context.fields["odd"].append(3)
    return str(odd)

@tool
def locked() -> dict:
    "Return what can't be copied."
    return {"observation": "", "lock": threading.Lock()}

@reward
def picky(final_response, solution): return 1
"""
TASK = Task(id="t", instruction="How many?", environment="tools", extra={"answer": "72", "level": 3, "odd": [1]})
PAGE = Task(id="click-test")


def odd_answer(answer):
    return read_question({"id": "odd", "question": "Who?", "answer": answer})


def calls(*value, text=None):
    return Action(
        name=ActionName.CALL, text=text, calls=tuple(ToolCall(name=name, arguments=given) for name, given in value)
    )


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


@pytest.fixture
def world(mine):
    """Return an environment with these tools and this reward of `mine`, or a built-in one."""

    async def make_environment(*tools, reward="math_equal_reward", **limits):
        scored = reward if reward in REWARDS.builtin else f"{mine}:{reward}"
        sets = [f"agent.{key}={value}" for key, value in limits.items()]
        settings = load(overrides=[f"agent.tools={json.dumps(tools)}", f"agent.reward_name={scored}", *sets])
        environment = find_environment("tools").make_pool(settings).new()
        assert await environment.reset(TASK, 0) == ("How many?", RawObservation(url="", title=""))
        return environment

    return make_environment


async def test_calls_give_results_and_the_answer_its_reward(world):
    environment = await world("calculator", "answer")
    assert [schema["function"]["name"] for schema in environment.tools] == ["calculator", "answer"]
    result = await environment.step(calls(("calculator", {"expression": "48+24"}), ("calculator", {"expression": "/"})))
    assert [(came.text, came.error) for came in result.view.results] == [
        ("72", False),
        ("Error: '/' is not expected there", True),
    ]
    assert (result.done, result.score) == (False, None)
    score = await environment.answer("It is 72.")
    assert (score.source, score.value, score.detail) == ("environment", 1.0, 'math_equal_reward {"acc": 1.0}')


async def test_a_terminal_tool_ends_the_episode_with_its_text(world):
    environment = await world("calculator", "answer")
    result = await environment.step(calls(("calculator", {"expression": "1"}), ("answer", {"text": "72"})))
    assert (result.view, result.done, result.answer) == (None, True, "72")
    assert result.score.value == 1.0


async def test_the_reward_gets_all_there_is_by_name(world, mine):
    environment = await world("calculator", reward="all_of_it")
    await environment.step(calls(("calculator", {"expression": "1"}), text="Let me see."))
    score = await environment.out_of_steps()
    assert (score.value, score.detail, score.extras) == (0.5, 'all_of_it {"length": 3}', {"length": 3.0})
    seen = REWARDS.find(f"{mine}:all_of_it").function.__globals__["SEEN"]
    assert seen == [("1", ["user", "assistant", "tool"], "t", "How many?", "72", 3, {"odd": [1]})]
    await (await world(reward="all_of_it")).out_of_steps()
    assert seen[-1][0] == "", "out of steps without a word"
    assert (await (await world(reward="later")).answer("x")).value == 3.0


@pytest.mark.parametrize(("last", "reward"), [("Thought: I know.\nFinal Answer: 72", 1.0), ("Final Answer: 72", 0.0)])
async def test_a_reward_reads_whole_responses_of_which_an_action_has_only_parts(world, last, reward):
    environment = await world("calculator", reward="math_reward_thought_with_tool")
    first = 'Thought: I add.\nAction: calculator\nAction Input: {"expression": "48+24"}'
    environment.responses = ["Thought: hm.\nAction:", first]
    await environment.step(calls(("calculator", {"expression": "48+24"}), text="I add."))
    environment.responses = [*environment.responses, last]
    assert (await environment.answer("72")).value == reward


async def test_what_a_tool_changes_in_a_record_is_not_for_other_episodes_of_its_task(world, mine):
    environment = await world(f"{mine}:add", reward="all_of_it")
    for _ in range(2):
        await environment.reset(TASK, 0)
        results = [await environment.step(calls(("add", {}))) for _ in range(2)]
        assert [it.view.results[0].text for it in results] == ["[1, 2, 3]", "[1, 2, 3, 2, 3]"]
        await environment.answer("72")
    assert REWARDS.find(f"{mine}:all_of_it").function.__globals__["SEEN"][-1][-1] == {"odd": [1]}
    assert TASK.extra["odd"] == [1]


SHOP = Task(
    id="mug",
    instruction="Buy a red mug and a pen for at most $10.",
    environment="tools",
    extra={"goods": {"red mug": 6, "blue mug": 5, "pen": 2}, "budget": 10, "wanted": ["red mug", "pen"]},
)


@pytest.fixture
def shop(tmp_path):
    """Return an environment of the shop in docs/tools.md."""
    text = Path("docs/tools.md").read_text()
    path = tmp_path / "shop.py"
    path.write_text("#" + text.split("```python\n# shop.py")[1].split("```")[0])
    tools = json.dumps([f"{path}:search", f"{path}:buy"])
    settings = load(overrides=[f"agent.tools={tools}", f"agent.reward_name={path}:bought"])
    check_tasks(settings, [SHOP])
    return find_environment("tools").make_pool(settings).new()


async def test_a_shop_is_made_of_tools_that_share_a_state_and_a_reward_that_reads_it(shop):
    await shop.reset(SHOP, 3)
    assert all("context" not in schema["function"]["parameters"]["properties"] for schema in shop.tools)
    result = await shop.step(calls(("search", {"words": "mug"})))
    assert result.view.results[0].text == "red mug: $6\nblue mug: $5"
    bought = [("buy", {"name": name}) for name in ("red mug", "blue mug", "hat")]
    result = await shop.step(calls(*bought))
    assert [came.text for came in result.view.results] == ["bought, $4 left", "that costs too much", "there is no hat"]
    score = await shop.answer("Done.")
    assert (score.value, score.extras) == (0.5, {"spent": 6.0})
    await shop.reset(SHOP, 3)
    assert (await shop.answer("Done.")).value == 0, "each episode has a state of its own"


async def test_the_pictures_of_a_question_are_shown_with_it(tmp_path, monkeypatch, world):
    monkeypatch.chdir(tmp_path)
    large, small = (pillow.new("RGB", size, "red") for size in ((4000, 2000), (8, 4)))
    large.save(tmp_path / "large.jpg")
    buffer = BytesIO()
    small.save(buffer, format="PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    exact = tmp_path / "exact.png"
    pillow.new("RGB", (64, 48)).save(exact)
    parts = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"type": "text", "text": "<image>How many?"},
    ]
    record = {"messages": [{"role": "user", "content": parts}], "images": ["large.jpg", {"path": "exact.png"}]}
    task = place_files(read_question(record | {"image": {"bytes": data}, "answer": "72"}), tmp_path)
    settings = load(overrides=["image.image_max_pixels=800000", "tasks.train=tasks.jsonl"])
    check_tasks(settings, [task])
    question, view = await find_environment("tools").make_pool(settings).new().reset(task, 0)
    assert question == "How many?"
    pictures = [pillow.open(BytesIO(result.image)) for result in view.results]
    assert [picture.format for picture in pictures] == ["PNG"] * 4
    assert [picture.size for picture in pictures] == [(46, 23), (1264, 632), (64, 48), (46, 23)]
    assert view.results[2].image == exact.read_bytes()
    exact.unlink()
    with pytest.raises(UsageError, match=f"images: there is no file {exact}"):
        check_tasks(settings, [task])
    with pytest.raises(BoundaryError, match=f"{exact}: no picture: No such file"):
        await find_environment("tools").make_pool(settings).new().reset(task, 0)
    with pytest.raises(BadTaskError, match="images: a path, a data URL"):
        read_question({"question": "?", "images": [3]})


def draw_on_nothing(mode):
    picture = pillow.new("RGBA", (80, 40))
    picture.paste("black", (20, 0, 80, 40))
    return picture.quantize(4) if mode == "P" else picture.convert(mode)


TURNED = pillow.Exif()
TURNED[0x0112] = 8  # the camera was turned to the left
PICTURES = {
    "RGBA": (draw_on_nothing("RGBA"), {}),
    "LA": (draw_on_nothing("LA"), {}),
    "a palette": (draw_on_nothing("P"), {}),
    "16 bits": (pillow.frombytes("I;16", (2, 1), b"\xff\xff\x00\x02").resize((80, 40), 0), {}),
    "a camera": (pillow.frombytes("L", (1, 2), b"\x00\xff").resize((40, 80), 0).rotate(180), {"exif": TURNED}),
}


@pytest.mark.parametrize(("picture", "options"), PICTURES.values(), ids=PICTURES)
@pytest.mark.parametrize("factor", [1, 4])
def test_a_question_s_picture_is_what_a_person_sees(tmp_path, picture, options, factor):
    """Here: wide, white on the left, black on the right."""
    picture.save(tmp_path / "a.png", **options)
    limits = ImageSettings(image_min_pixels=3200 * factor, image_max_pixels=10**6)
    result = pillow.open(BytesIO(load_image(str(tmp_path / "a.png"), limits)))
    assert (result.mode, result.width) == ("RGB", 80 * factor**0.5)
    left, right = (result.getpixel((result.width * at // 10, 20)) for at in (1, 8))
    assert (left, max(right) < 5) == ((255, 255, 255), True)


async def test_a_judge_scores_an_answer():
    host = Host(content=json.dumps({"reason": "said in words", "verdict": "yes"}))
    await host.start()
    overrides = ["agent.reward_name=llm_as_judge_reward", f"judge.base_url={host.url}", "judge.model=m"]
    async with find_environment("tools").make_pool(load(overrides=overrides)) as pool:
        environment = pool.new()
        await environment.reset(TASK, 0)
        score = await environment.answer("seventy-two")
    await host.stop()
    assert (score.value, score.detail) == (1.0, 'llm_as_judge_reward {"reason": "said in words"}')
    assert host.body["model"] == "m"
    assert '"reference": "72"' in host.body["messages"][1]["content"]


@pytest.mark.parametrize(
    ("setting", "task", "error", "words"),
    [
        ("agent.reward_name=llm_as_judge_reward", TASK, SettingsError, r"judge\.base_url: ''"),
        ("agent.reward_name={mine}:picky", TASK, UsageError, "picky needs solution, .* task t"),
        ("agent.reward_name={mine}:picky", PAGE, SettingsError, "miniwob has no reward function"),
        ('agent.tools=["calculater"]', TASK, UsageError, "'calculater'"),
        ('agent.tools=["calculator"] agent.call_format=code', TASK, UsageError, "calculator has no parameter code"),
        *(
            ("agent.reward_name=qa_em_reward", record, UsageError, r"task odd: answer: .* qa_em_reward can compare")
            for record in map(odd_answer, (None, "", [], [None, " "], {"value": "x", "aliases": ["y"]}))
        ),
    ],
)
def test_what_can_be_known_before_the_first_episode_is_told_then(mine, setting, task, error, words):
    with pytest.raises(error, match=words):
        check_tasks(load(overrides=setting.replace("{mine}", str(mine)).split(" ")), [task])
    check_tasks(load(overrides=['agent.tools=["calculater"]']), [PAGE])
    check_tasks(load(overrides=[f"agent.reward_name={mine}:later"]), [odd_answer(None)])
    check_tasks(load(), [odd_answer(True), odd_answer(0), odd_answer(["", "x"])])


@pytest.mark.parametrize(
    "reward",
    ["failing: .*KeyError: 'oops'", "nothing: .*NoneType", "endless: .*0.05 s", "all_of_it: TypeError: .* pickle"],
)
async def test_a_reward_that_fails_is_a_failure_and_not_a_0(world, mine, reward):
    name, words = reward.split(": ", 1)
    environment = await world(f"{mine}:locked", reward=name, reward_timeout=5 - 4.95 * (name == "endless"))
    await environment.step(calls(("locked", {})))
    with pytest.raises(BoundaryError, match=f"the reward {name} failed: {words}") as caught:
        await environment.answer("72")
    assert caught.value.kind is FailureKind.ENVIRONMENT_ERROR


async def test_an_action_of_the_web_is_refused(world):
    result = await (await world()).step(Action(name=ActionName.GO_BACK))
    assert result.action_error == "only tools can be called here"


async def test_the_expert_makes_a_record_s_calculations_and_answers(world):
    environment = await world("calculator", reward="math_equal_reward_tool")
    with pytest.raises(UsageError, match="task t: no expert solves it"):
        await environment.expert_action()
    worked = Task(**{**TASK.model_dump(), "extra": {"answer": "72", "expression": ["48/2", "48+24"]}})
    await environment.reset(worked, 0)
    actions = [await environment.expert_action()]
    while actions[-1].name is ActionName.CALL:
        await environment.step(actions[-1])
        actions.append(await environment.expert_action())
    assert actions[:-1] == [calls(("calculator", {"expression": text})) for text in ("48/2", "48+24")]
    assert (await environment.answer(actions[-1].text)).value == 1.0


def test_tasks_without_an_expert_are_told_before_the_first_episode():
    settings = load(["arithmetic"])
    with pytest.raises(UsageError, match="task t: no expert solves it"):
        require_experts(settings, [TASK])
    with pytest.raises(UsageError, match="its expert needs the tool calculator"):
        require_experts(load(), [TASK])
    with pytest.raises(UsageError, match="there is no expert for a task without site"):
        require_experts(settings, [Task(id="w", environment="web")])
    worked = Task(**{**TASK.model_dump(), "extra": {"answer": "72", "expression": "6*12"}})
    require_experts(settings, [Task(id="click-test"), Task(id="s", environment="sites"), worked])


async def test_many_episodes_at_once_have_a_thread_for_each_call(world):
    """A slow tool of one episode holds up no other one."""
    environments = [await world("calculator") for _ in range(40)]
    before = threading.active_count()
    results = await asyncio.gather(
        *(environment.step(calls(("calculator", {"expression": str(n)}))) for n, environment in enumerate(environments))
    )
    assert [result.view.results[0].text for result in results] == [str(n) for n in range(40)]
    assert threading.active_count() <= before + 40
