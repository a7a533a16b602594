"""The whole engine on WebArena's tasks over the fixture sites, in a real Chromium."""

import json
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.agent.policy_host import Host
from tests.environments.visits import HASTY
from tests.rollout.conftest import World
from tests.rollout.scripted import ScriptedAgent
from webgym_cli.agent.forms.webrl_forms import render_webrl_action
from webgym_cli.agent.prompt import render_step
from webgym_cli.config.load import load
from webgym_cli.environments.registry import find_environment
from webgym_cli.errors import WebGymError
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.task import Split
from webgym_cli.records.webrl import WebRLActionName
from webgym_cli.rollout.agents import OracleAgent
from webgym_cli.rollout.plan import plan_rollout
from webgym_cli.util.files import write_lines

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("chromium")]
TASKS = "fixture-cart,fixture-tabs,fixture-generated"


class Engine(World):
    """A run on tasks in WebArena's form."""

    files = ()

    async def roll(self, tasks, agent, *overrides, episodes=1):
        given = ("context_config.prompt_version=webrl", "rollout.max_attempts=1", "rollout.train_max_steps.easy=20")
        loaded = self.load(*HASTY, *given, f"tasks.train={tasks}", *overrides)
        async with find_environment("webarena").make_pool(loaded) as pool:
            await super().roll(episodes, agent=agent, pool=pool)
        return self.stored

    @property
    def stored(self):
        return {trajectory.task.id: trajectory for trajectory in super().stored}


@pytest.fixture
def engine(tmp_path):
    return Engine(tmp_path)


def says(*replies):
    """Return an agent that gives these replies in turn, then an answer."""
    return ScriptedAgent((*replies, 'exit(message="wrong")'))


async def test_the_expert_s_episodes_are_stored_and_can_be_rendered_again(engine):
    """tests/environments/webarena has the other tasks."""
    agent = OracleAgent(load(overrides=["context_config.prompt_version=webrl"]))
    stored = await engine.roll(f"webarena:{TASKS}", agent, "rollout.concurrency=3", episodes=3)
    assert len(stored) == 3
    generated = stored.pop("fixture-generated")
    assert {name: result.outcome.reward for name, result in stored.items()} == dict.fromkeys(stored, 1.0)
    assert generated.awaits_judgement
    assert (generated.outcome.stop, generated.outcome.scores) == (Stop.ANSWERED, ())
    for item in (*stored.values(), generated):
        assert item.outcome.failure is None
        for step in item.steps:
            assert step.response == render_webrl_action(step.action)
            assert step.observation.html and step.observation.screenshot
            assert render_step(item, step.index).digest == step.prompt_digest
    switched = [step.action.name for step in stored["fixture-tabs"].steps]
    assert WebRLActionName.SWITCH_TAB in switched


def fuzzy(folder, **answers):
    scoring = {"eval_types": ["string_match"], "reference_answers": answers, "string_note": "It has none."}
    task = {"id": "fuzzy", "instruction": "What colour is it?", "start_url": "http://shop.test"}
    write_lines(folder / "fuzzy.jsonl", [{**task, "environment": "webarena", "eval": scoring}])
    return folder / "fuzzy.jsonl"


@asynccontextmanager
async def judge_that_says(reply):
    """Serve a judge that gives one reply; yield it and its settings."""
    host = Host(content=reply)
    await host.start()
    yield host, (f"judge.base_url={host.url}", "judge.retries=1")
    await host.stop()


@pytest.mark.parametrize(
    ("verdict", "reward", "expected", "reference"), [("yes", 1.0, ["red"], "red"), ("no", 0.0, "N/A", "It has none.")]
)
async def test_a_judge_decides_a_fuzzy_match(engine, tmp_path, verdict, reward, expected, reference):
    async with judge_that_says(json.dumps({"reason": "So it is.", "verdict": verdict})) as (judge, settings):
        (trajectory,) = (await engine.roll(fuzzy(tmp_path, fuzzy_match=expected), says(), *settings)).values()
    assert (trajectory.outcome.reward, trajectory.outcome.failure) == (reward, None)
    assert judge.received == 1
    question, _, data = judge.body["messages"][1]["content"].partition("\n<data>\n")
    fields = {"task": "What colour is it?", "reference": reference, "answer": "wrong"}
    assert json.loads(data.removesuffix("\n</data>")) == fields
    assert ("can't be done" in question) == (expected == "N/A")


@pytest.mark.parametrize("reply", ["It is right.", '{"reason": "Hm.", "verdict": "partly"}', None])
async def test_a_verdict_that_can_not_be_read_and_a_judge_that_is_down_are_no_reward(engine, tmp_path, reply):
    async with judge_that_says(reply) as (judge, settings):
        if reply is None:
            await judge.stop()
        with pytest.raises(WebGymError, match="no episode could be collected"):
            await engine.roll(fuzzy(tmp_path, fuzzy_match=["red"]), says(), *settings, "judge.timeout=2")
    assert engine.stored["fuzzy"].outcome.failure is FailureKind.ENVIRONMENT_UNAVAILABLE
    assert judge.received == (0 if reply is None else 2)


@asynccontextmanager
async def two_sites(folder, app):
    """Serve a shop; a forum beside it, on another port of the same host, is down. Yield tasks, settings and server."""
    async with TestServer(app) as shop:
        urls = {"shopping": str(shop.make_url("")).rstrip("/"), "reddit": "http://127.0.0.1:9"}
        scoring = {"eval_types": ["string_match"], "reference_answers": {"exact_match": "wrong"}}
        facts = {"instruction": "Say it.", "environment": "webarena", "eval": scoring}
        lines = [{"id": site, "start_url": url, "sites": [site], **facts} for site, url in urls.items()]
        write_lines(folder / "tasks.jsonl", lines)
        settings = [f"webarena.{site}.url={url}" for site, url in urls.items()]
        yield folder / "tasks.jsonl", settings, shop


def a_shop(page="<title>shop</title><a href='/next'>next</a>", status=200):
    async def answer(request):
        return web.Response(text=page, content_type="text/html", status=status)

    app = web.Application()
    app.router.add_get("/{any:.*}", answer)
    return app


async def test_a_site_that_is_down_costs_no_attempt(engine, tmp_path):
    async with two_sites(tmp_path, a_shop()) as (tasks, settings, _):
        stored = await engine.roll(tasks, says(), *settings, "rollout.max_attempts=2", episodes=2)
    down = stored["reddit"].outcome
    assert (down.failure, down.failure.counts_as_attempt) == (FailureKind.ENVIRONMENT_UNAVAILABLE, False)
    assert "127.0.0.1:9" in down.failure_detail
    assert (stored["shopping"].outcome.reward, stored["reddit"].attempt) == (1.0, 1)
    loaded = load(overrides=["context_config.prompt_version=webrl", f"tasks.train={tasks}", *settings])
    owed = plan_rollout(engine.run, loaded, Split.TRAIN, 0, 2).owed
    assert [(pending.episode.task.id, pending.failures) for pending in owed] == [("reddit", 0)]


@pytest.mark.parametrize("status", [502, 503])
async def test_a_site_that_is_still_starting_costs_no_attempt(engine, tmp_path, status):
    async with two_sites(tmp_path, a_shop(status=status)) as (tasks, settings, _):
        with pytest.raises(WebGymError, match="environment_unavailable"):
            await engine.roll(tasks, says(), *settings, episodes=2)


async def test_a_site_that_stops_during_an_episode_is_no_reward_of_0(engine, tmp_path):
    async with two_sites(tmp_path, a_shop()) as (tasks, settings, shop):
        port = shop.port

        class Closes(ScriptedAgent):
            async def act(self, prompt, environment):
                await shop.close()
                return await super().act(prompt, environment)

        agent = Closes((render_webrl_action(Action(name=ActionName.CLICK, element_id=0)),))
        with pytest.raises(WebGymError, match="environment_unavailable"):
            await engine.roll(tasks, agent, *settings, episodes=2)
    assert f"127.0.0.1:{port} does not answer" in engine.stored["shopping"].outcome.failure_detail
