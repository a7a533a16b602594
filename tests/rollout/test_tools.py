"""Questions through the same rollout as the web: a policy over HTTP, the calculator, chains, and what comes after."""

import json
import re
from collections import Counter

import pytest
from aiohttp import web

from tests.agent.policy_host import Host
from tests.json_server import completion
from tests.prepare.buffer import converter, drawn, steps_of
from tests.rollout.conftest import roll_stage
from webgym_cli.agent.prompt import render_step
from webgym_cli.inspect.overview import build_overview
from webgym_cli.inspect.page import EpisodeView, render_episode_page
from webgym_cli.inspect.verify import verify
from webgym_cli.prepare.sft.convert import build_trajectory_sample
from webgym_cli.records.failure import Stop
from webgym_cli.records.task import Split
from webgym_cli.report.facts import gather_facts
from webgym_cli.report.views import build_sections
from webgym_cli.store.index.query import open_index
from webgym_cli.store.index.selection import TrajectoryQuery
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.tracking.worker import extract_metrics

RECORDS = [{"question": f"Calculate {n} * 7.", "answer": str(n * 7)} for n in range(2, 6)]
PICTURE = '''
from webgym_cli.tools import tool
from tests.records.builders import png

@tool
def draw(shade: int) -> dict:
    """Draw a grey picture."""
    return {"observation": "drawn", "image": png(shade)}
'''


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


class Solver(Host):
    """Calculates with the tool, then answers; as vLLM does, it gives its token ids."""

    def __init__(self, turn=None):
        super().__init__()
        self.requests = []
        self.turn = turn or self.solve

    @staticmethod
    def solve(messages):
        results = re.findall(r"<tool_response>\n(.*?)\n</tool_response>", messages[-1]["content"])
        if results:
            return f"It is \\boxed{{{results[-1]}}}."
        expression = messages[1]["content"].removeprefix("Calculate ").removesuffix(".")
        return call("calculator", expression="1+1") + call("calculator", expression=expression)

    async def _version(self, request):
        return web.json_response({"version": "0.32.0"})

    async def _complete(self, request):
        body = await request.json()
        self.requests.append(body)
        text = self.turn(body["messages"])
        ids = list(text.encode())
        token = {"token": "x", "logprob": -0.5, "bytes": None, "top_logprobs": []}
        answer = completion(text, token_ids=ids, logprobs={"content": [token] * len(ids)})
        return web.json_response({**answer, "prompt_token_ids": [1, 2, 3]})


@pytest.fixture
def roll(tmp_path):
    """Roll a run out against a host; its settings may be changed."""

    async def rolled(host, episodes, *overrides, split=Split.TRAIN, records=RECORDS):
        data = tmp_path / "questions.json"
        data.write_text(json.dumps(records))
        given = (f"tasks.train={data}", "tasks.test=", "rollout.concurrency=4", *overrides)
        await host.start()
        try:
            return await roll_stage(tmp_path, host.url, episodes, *given, split=split)
        finally:
            await host.stop()

    return rolled


async def test_questions_are_rolled_out_in_groups_with_calls_results_and_tokens(roll):
    host = Solver()
    _, settings, summary, trajectories = await roll(host, 8, "agent.num_chains=4")
    assert (summary["episodes"], summary["success_rate"], summary["failures"]) == (8, 1.0, {})
    assert sorted(Counter(trajectory.task.id for trajectory in trajectories).values()) == [4, 4]
    assert len({trajectory.seed for trajectory in trajectories}) == 8
    for trajectory in trajectories:
        first, second = trajectory.steps
        wanted = trajectory.task.extra["answer"]
        assert [item.name for item in first.action.calls] == ["calculator"] * 2
        assert first.observation.screenshot is first.page_changed is None
        assert [result.text for result in second.observation.results] == ["2", wanted]
        assert second.action.text == trajectory.outcome.answer == f"It is \\boxed{{{wanted}}}."
        assert trajectory.outcome.stop is Stop.ANSWERED
        assert all(bytes(step.generation.token_ids).decode() == step.response for step in trajectory.steps)
        assert all(len(step.generation.logprobs) == len(step.generation.token_ids) for step in trajectory.steps)
        for step in trajectory.steps:  # all of a conversation is sent, whatever the window
            assert render_step(trajectory, step.index, window=0).digest == step.prompt_digest
        assert trajectory.prompt.system_prompt == settings.agent.system_prompt
    sent = Counter(message["role"] for body in host.requests for message in body["messages"])
    assert sent == {"system": 16, "user": 24, "assistant": 8}


@pytest.mark.parametrize(
    ("replies", "name", "reward"),
    [
        ([call("calculator", expression="2*7")] * 2, "math_reward_string_equal", 1.0),
        ([call("calculator", expression="2*7"), "<tool_call>{"], "math_reward_string_equal", 0.1),
        ([f"<think>a</think>{call('calculator', expression='2*7')}"] * 2, "math_equal_reward_think", 1.0),
    ],
)
async def test_after_the_last_turn_what_there_is_is_scored(roll, replies, name, reward):
    host = Solver(lambda messages: replies[len(messages) > 2])
    overrides = ("agent.max_turns=2", f"agent.reward_name={name}")
    _, _, _, trajectories = await roll(host, 1, *overrides, records=RECORDS[:1])
    (trajectory,) = trajectories
    assert (len(trajectory.steps), trajectory.outcome.stop, trajectory.outcome.reward) == (2, Stop.STEP_LIMIT, reward)


SHAPED = """
from webgym_cli.scoring import reward

@reward
def shaped(final_response, answer):
    right = answer in final_response
    return {"reward": 2.5 if right else -0.5, "em": right, "tag": "x", **({"even": 1} if answer == "14" else {})}
"""


async def test_rewards_are_real_numbers_with_a_threshold_and_their_means(roll, tmp_path):
    (tmp_path / "shaped.py").write_text(SHAPED)
    host = Solver(lambda messages: Solver.solve(messages) if " 2 * 7" in str(messages) else "It is 1.")
    overrides = (f"agent.reward_name={tmp_path}/shaped.py:shaped", "rollout.success_threshold=2")
    run, _, summary, trajectories = await roll(host, 4, *overrides, split=Split.TEST)
    assert sorted(trajectory.outcome.reward for trajectory in trajectories) == [-0.5, -0.5, -0.5, 2.5]
    assert [summary[name] for name in ("success_rate", "mean_reward", "mean_steps")] == [0.25, 0.25, 1.25]
    assert summary["reward_extra"] == {"em": 0.25, "even": 1.0}  # the one question with the answer 14
    assert summary["tool_calls"] == {"calculator": 0.5}  # two calls in one of four episodes
    means = {"mean_reward": 0.25, "mean_steps": 1.25, "reward_extra/em": 0.25, "reward_extra/even": 1.0}
    with open_index(run) as index:
        seen = build_overview(run, index, TrajectoryQuery())
        facts = gather_facts(run, index, 0, None)
    series = f"test of {summary['policy']}"
    means = {**means, "tool_calls/calculator": 0.5}
    assert (seen["means"], seen["successes"], seen["scored"]) == ({f"{series} 0": means}, 1, 4)
    rows = {(row["key"], row["name"]): row["mean"] for row in facts["means"]}
    assert rows == {(series, name): mean for name, mean in means.items()}
    (section,) = (section for section in build_sections(facts) if section.id == "rewards")
    assert [figure.title for figure in section.figures] == sorted(set(means) - {"mean_steps"})
    named = extract_metrics({**summary, "event": "evaluation", "policy": "model"})
    assert (named["evaluation/mean_reward"], named["evaluation/reward_extra/em"]) == (0.25, 0.25)
    assert named["evaluation/tool_calls/calculator"] == 0.5


async def test_a_reply_that_cannot_be_read_is_told_once_and_results_are_not_repeated(roll):
    replies = iter([call("calculator", expression="2*7"), "<tool_call>{", "14"])
    host = Solver(lambda messages: next(replies))
    await roll(host, 1, "agent.max_turns=3")
    sent = [message["content"] for message in host.requests[-1]["messages"][2:]]
    assert sent[:3] == [call("calculator", expression="2*7"), "<tool_response>\n14\n</tool_response>", "<tool_call>{"]
    assert sent[3:] == ["The last reply could not be read: no_tool_call. Nothing was called."]


async def test_the_last_request_holds_the_images_of_results(roll, tmp_path):
    (tmp_path / "picture.py").write_text(PICTURE)
    replies = iter([call("draw", shade=1) + call("draw", shade=2), "done"])
    host = Solver(lambda messages: next(replies))
    tools = json.dumps([f"{tmp_path / 'picture.py'}:draw"])
    run, _, _, (trajectory,) = await roll(host, 1, f"agent.tools={tools}", "agent.reward_name=qa_f1_reward")
    parts = host.requests[-1]["messages"][-1]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url", "text", "image_url", "text"]
    assert len(trajectory.steps[1].observation.pictures) == 2
    assert all(ScreenshotStore(run.screenshots).get(shot.sha256) for shot in trajectory.steps[1].observation.pictures)
    assert verify(run, lambda event: None)["findings_by_kind"] == {}
    assert b"Result of draw" in render_episode_page(EpisodeView(trajectory, ()), ScreenshotStore(run.screenshots))


async def test_what_was_rolled_out_can_be_prepared_indexed_and_shown(roll):
    run, settings, _, trajectories = await roll(Solver(), 2, "algorithm_config.filter_retokenized=false")
    with open_index(run) as index:
        rows = list(index.rows("SELECT action, screenshot, environment_seconds FROM steps ORDER BY step", []))
    assert Counter(row["action"] for row in rows) == {"call": 2, "answer": 2}
    assert {row["screenshot"] for row in rows} == {None}
    _, draw = drawn(run, settings, [0], converter(run, settings))
    assert sorted(steps_of(draw)) == sorted((trajectory.id, index) for trajectory in trajectories for index in range(2))
    sample = next(sample for sample in draw.samples if sample.step == 1)
    assert [message.role for message in sample.messages] == ["system", "user", "assistant", "user", "assistant"]
    assert build_trajectory_sample(trajectories[0]).messages[-1].content == trajectories[0].steps[-1].response
    shown = render_episode_page(EpisodeView(trajectories[0], ()), ScreenshotStore(run.screenshots)).decode()
    assert "Result of calculator" in shown and "not the one that was sent" not in shown
