"""Rollouts of an agent's command: plan, check, retries, limits and isolation are those of any rollout."""

import asyncio
import errno
import json
import re
import shlex
import socket
import sys
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest

from tests.environments.lab import served_with_sites
from tests.environments.odd_server import OddServer
from tests.gateway.served import LIMITS, Upstream
from tests.rewards.scripted_judge import ScriptedJudgeServer
from webgym_cli.agent.client.gate import PolicyGate
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.config.load import load
from webgym_cli.environments.browser.egress_proxy import EgressProxy
from webgym_cli.environments.fixture_sites.episode import SiteEpisode
from webgym_cli.environments.fixture_sites.tasks import find_task
from webgym_cli.errors import SettingsError, StoreError, WebGymError
from webgym_cli.gateway.command import CommandEpisode
from webgym_cli.gateway.recorder import Recorder
from webgym_cli.gateway.requests import RequestError
from webgym_cli.gateway.sessions import recover_sessions
from webgym_cli.loop.context import StageContext
from webgym_cli.loop.rollout_setup import parse_command, plan_current_rollout
from webgym_cli.loop.rollouts import execute_rollout
from webgym_cli.prepare.rl.rows import read_turns
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import ParseErrorKind
from webgym_cli.rollout.queue import ResourceClaims, SharedRollouts, SlotPool
from webgym_cli.rollout.stage_timer import StageTimer
from webgym_cli.scoring.check import CHECKS, check
from webgym_cli.store.buffer import scan, scan_stored
from webgym_cli.store.run import RunDir, create_or_open
from webgym_cli.util.secrets import read_secret

AGENT = Path(__file__).with_name("agent.py")


def write_tasks(tmp_path, *tasks):
    """Write tasks of the shop with these fields; return the setting that names them."""
    shop = {"id": "shop-cheapest", "environment": "sites", "start_url": "http://shop.test/"}
    (tmp_path / "tasks.jsonl").write_text("\n".join(json.dumps(shop | task) for task in tasks))
    return f"tasks.train={tmp_path}/tasks.jsonl"


async def roll_out(tmp_path, model, mode, *overrides, right=True, cut=False, shared=None, answers=1000, episodes=1):
    """Return the trajectories of an episode on the shop, or of several, and the run."""
    tokens = ModelTokens(str(model))
    async with Upstream(tokens) as upstream:
        upstream.finish_reason, upstream.answers = "length" if cut else "stop", answers
        own = ("tasks.train=sites:shop-cheapest", "rollout.max_attempts=2", *overrides)
        run, settings, plan = plan_agent(tmp_path, model, upstream, mode, episodes, *own)
        episode = plan.episodes[0]
        upstream.text = SiteEpisode(find_task(episode.task.id), episode.seed).reference if right else "No idea."
        async with StageContext(run, settings, run.logs, lambda event: None) as context:
            try:
                await execute_rollout(context, plan, shared)
            except WebGymError as error:
                assert "no episode could be collected" in str(error)
    return list(scan_stored(run, Split.TRAIN, 0)), run, tokens


def plan_agent(tmp_path, model, upstream, mode, episodes, *overrides):
    """Return a run, its settings and the plan of so many episodes of the agent."""
    run, address = RunDir(tmp_path / "run"), f"http://{upstream.address}/v1"
    own = (f"rollout.policy={address}", f"rollout.agent={sys.executable} {AGENT} {mode}")
    settings = load(overrides=[*LIMITS, *own, f"policy_config.base_model={model}", *overrides])
    create_or_open(run, settings)
    return run, settings, plan_current_rollout(run, settings, Split.TRAIN, address, episodes)


class SlowReader(Upstream):
    """Answers what is to be read on the page, and not before as many requests wait as episodes may run."""

    waiting = most = 0

    async def _complete(self, request):
        prompt = await request.text()
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        if self.waiting == CONCURRENCY:
            self.requested.set()
        await self.requested.wait()
        (number,) = set(re.findall(r"shelf (\d)", prompt))
        self.text = f"Lamp {number}" if int(number) % 2 else "No idea."
        try:
            return await super()._complete(request)
        finally:
            self.waiting -= 1


CONCURRENCY = 3


@pytest.mark.browser
async def test_agents_act_at_once_and_each_is_judged_by_its_own_answer(tmp_path, model):
    pages = {f"/{number}": f"<h1>On shelf {number} is Lamp {number}</h1>" for number in range(6)}
    tokens = ModelTokens(str(model))
    async with OddServer(pages) as site, ScriptedJudgeServer() as judge, SlowReader(tokens) as upstream:
        tasks = [
            {"id": f"t{number}", "instruction": "Which lamp is it?", "start_url": f"{site.url}/{number}"}
            | {"environment": "web", "rubric": [f"The answer is 'Lamp {number}'."]}
            for number in range(6)
        ]
        (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
        own = (f"tasks.train={tmp_path}/tasks.jsonl", 'browser.private_hosts=["127.0.0.1"]')
        limits = (f"rollout.concurrency={CONCURRENCY}", f"judge.base_url={judge.base_url}")
        run, settings, plan = plan_agent(tmp_path, model, upstream, "seeing", 6, *own, *limits)
        async with StageContext(run, settings, run.logs, lambda event: None) as context:
            await execute_rollout(context, plan)
        assert upstream.most == CONCURRENCY
    judged = list(scan(run, Split.TRAIN, 0))
    assert {one.task.id: one.outcome.reward for one in judged} == {f"t{number}": number % 2 for number in range(6)}
    assert all(len({step.response for step in one.steps}) == 1 for one in judged)


@pytest.mark.browser
@pytest.mark.parametrize(
    ("mode", "right", "reward"), [("answer", True, 1.0), ("bom", True, 1.0), ("answer", False, 0.0)]
)
async def test_the_environment_s_check_rewards_an_agent_s_answer(tmp_path, model, mode, right, reward):
    (result,), _, tokens = await roll_out(tmp_path, model, mode, right=right)
    assert (result.outcome.reward, result.outcome.stop, len(result.steps)) == (reward, Stop.ANSWERED, 2)
    assert result.id == result.episode == "train-0000-00000" and result.instruction
    assert isinstance(read_turns(result, tokens), list)


BREAKING = {"crash": "I break", "idle": "made no call of the policy", "fifo": "no regular file"}
BREAKING |= {"misnamed": "its last call was refused: the model is 'policy'"}


@pytest.mark.browser
@pytest.mark.parametrize(
    ("details", "cut"), [(BREAKING, False), ({"cut-helper": "cut off", "cut-killed": "exited with 137"}, True)]
)
async def test_agents_that_break_are_failures_and_are_tried_again(tmp_path, model, details, cut):
    tasks = write_tasks(tmp_path, *({"start_url": f"http://shop.test/?{mode}"} for mode in details))
    results, run, _ = await roll_out(tmp_path, model, "by-page", tasks, cut=cut, episodes=len(details))
    assert len(results) == 2 * len(details)
    for one in results:
        assert (one.outcome.failure, one.outcome.reward) == (FailureKind.ENVIRONMENT_ERROR, None)
        assert details[one.task.start_url.partition("?")[2]] in one.outcome.failure_detail
        assert (run.logs / "agents" / f"{one.id}.log").is_file()


@pytest.mark.browser
async def test_an_agent_that_hangs_is_a_failure_and_is_tried_again(tmp_path, model):
    results, run, _ = await roll_out(tmp_path, model, "hang", "rollout.episode_timeout=6")
    assert [(one.outcome.failure, one.outcome.reward) for one in results] == [(FailureKind.EPISODE_TIMEOUT, None)] * 2
    assert len(results[0].steps) == 1
    assert all((run.logs / "agents" / f"{one.id}.log").is_file() for one in results)


@pytest.mark.browser
@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), FailureKind.NAVIGATION_FAILED),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), FailureKind.NETWORK_UNAVAILABLE),
    ],
)
@pytest.mark.parametrize("steps", [1, 9])
async def test_an_answer_without_the_site_is_a_failure(tmp_path, model, monkeypatch, error, failure, steps):
    """The agent's policy answers, and the agent exits with 0."""

    async def refuse(proxy, host, port, **tls):
        proxy._note_unreached(host, error)
        raise error

    monkeypatch.setattr(EgressProxy, "_connect", refuse)
    result, *_ = (await roll_out(tmp_path, model, "blind", f"rollout.train_max_steps.easy={steps}"))[0]
    assert (result.outcome.failure, result.outcome.reward) == (failure, None)
    assert error.strerror in result.outcome.failure_detail


PAGES = {
    "captcha": FailureKind.SITE_BLOCKED,
    "error": FailureKind.START_PAGE_FAILED,
    "blank": FailureKind.NAVIGATION_FAILED,
    "late": FailureKind.AUTHENTICATION_REQUIRED,
}


@pytest.mark.browser
async def test_an_agent_whose_start_page_is_an_error_page_is_a_failure(tmp_path, model, monkeypatch):
    """As of webgym's own episodes; the agent answers whatever it sees, and exits with 0."""
    monkeypatch.setenv("LAB_LOGIN", "user-1:password-7Rq")
    tasks = write_tasks(tmp_path, *({"start_url": f"http://lab.test/{page}"} for page in PAGES))
    own = (tasks, 'browser.http_credentials={"lab.test": "LAB_LOGIN"}', "rollout.blocklist_hours=0")
    with served_with_sites():
        results, *_ = await roll_out(tmp_path, model, "blind", *own, right=False, episodes=len(PAGES))
    ends = {(one.task.start_url.rpartition("/")[2], one.outcome.failure, one.outcome.reward) for one in results}
    assert ends == {(page, failure, None) for page, failure in PAGES.items()}


@pytest.mark.browser
@pytest.mark.parametrize(("mode", "cut"), [("answer", False), ("deaf", False), ("deaf", True)])
async def test_an_agent_whose_policy_is_lost_is_a_failure_however_it_ends(tmp_path, model, mode, cut):
    """Its last call fails; it exits with 1, or goes on and exits with 0, also after an answer that was cut off."""
    result, *_ = (await roll_out(tmp_path, model, mode, cut=cut, answers=1))[0]
    assert (result.outcome.failure, result.outcome.reward) == (FailureKind.POLICY_UNAVAILABLE, None)
    assert len(result.steps) == 1


@pytest.mark.browser
@pytest.mark.parametrize(
    "error",
    [RequestError(502, "a picture was lost", "prompt_tokens_differ"), StoreError("a picture was lost: disk full")],
)
async def test_an_agent_whose_last_answer_can_t_be_recorded_is_a_failure_however_it_ends(
    tmp_path, model, monkeypatch, error
):
    """The call is refused, and the agent goes on and exits with 0."""
    make = Recorder._make_step

    def refuse_second(recorder, session, *given):
        if session.calls:
            raise error
        return make(recorder, session, *given)

    monkeypatch.setattr(Recorder, "_make_step", refuse_second)
    result, *_ = (await roll_out(tmp_path, model, "deaf"))[0]
    assert (result.outcome.failure, result.outcome.reward) == (FailureKind.ENVIRONMENT_ERROR, None)
    assert "a picture was lost" in result.outcome.failure_detail and len(result.steps) == 1


@pytest.mark.browser
async def test_a_check_that_looks_at_the_page_of_an_agent_is_a_failure(tmp_path, model):
    facts = ("url", "title", "text", "page", "answer")
    tasks = write_tasks(tmp_path, *({"check": "looks", "fact": fact} for fact in facts))
    with mock.patch.dict(CHECKS.registered, clear=True):
        check("looks")(lambda fact, context: float(getattr(context, fact) == "Thanks"))
        results, *_ = await roll_out(tmp_path, model, "answer", tasks, episodes=len(facts))
    ends = Counter((one.task.extra["fact"], one.outcome.failure, one.outcome.reward) for one in results)
    failed = {(fact, FailureKind.ENVIRONMENT_ERROR, None): 2 for fact in facts[:-1]}
    assert ends == failed | {("answer", None, 0.0): 1}


@pytest.mark.browser
async def test_an_agent_that_gives_up_at_an_answer_that_was_cut_off_is_a_result_of_the_policy(tmp_path, model):
    (result,), *_ = await roll_out(tmp_path, model, "cut", cut=True)
    assert (result.outcome.stop, result.outcome.reward, result.outcome.failure) == (Stop.STUCK, 0.0, None)
    assert [step.parse_error for step in result.steps] == [ParseErrorKind.TRUNCATED]


@pytest.mark.browser
async def test_an_agent_s_time_limit_is_paused_while_the_policy_s_weights_change(tmp_path, model, monkeypatch):
    gate, episodes = PolicyGate(), []
    play = CommandEpisode._play

    async def note(episode):
        episodes.append(episode)
        return await play(episode)

    monkeypatch.setattr(CommandEpisode, "_play", note)
    shared = SharedRollouts(gate, SlotPool(1), ResourceClaims())
    async with gate.closed():
        rolling = asyncio.create_task(roll_out(tmp_path, model, "answer", shared=shared))
        async with asyncio.timeout(120):
            while not gate.held:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert episodes[0]._deadline.when() is None
    (result,), *_ = await rolling
    assert (result.outcome.reward, episodes[0]._deadline.when() is None) == (1.0, False)


@pytest.mark.browser
async def test_every_call_is_counted_and_written_and_a_helper_s_is_not_trained(tmp_path, model, monkeypatch):
    counted = []
    monkeypatch.setattr(StageTimer, "record_step", lambda timer, *facts: counted.append(facts))
    before = RunDir(tmp_path / "run").sessions / "train-0000-00000.jsonl"
    before.parent.mkdir(parents=True)
    before.write_text('{"event": "open"}\n')  # of an attempt that was killed
    (result,), run, _ = await roll_out(tmp_path, model, "helped")
    lines = [json.loads(line) for line in (run.sessions / f"{result.id}.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["open", "open", *["call", "delivered"] * 3]
    assert [line["call"].get("helper", False) for line in lines[2::2]] == [False, True, False]
    assert [step.response for step in result.steps] == [lines[2]["call"]["step"]["response"]] * 2
    assert [(name, number, limit) for name, number, limit, _ in counted] == [(result.id, n, 10) for n in (1, 2, 3)]
    assert not list(recover_sessions(run.sessions, ""))  # a gateway must not store the episode again


@pytest.mark.browser
async def test_an_agent_gets_as_many_calls_as_its_episode_has_steps(tmp_path, model):
    (result,), *_ = await roll_out(tmp_path, model, "long", "rollout.train_max_steps.easy=2")
    assert (result.outcome.stop, result.outcome.reward, len(result.steps)) == (Stop.STEP_LIMIT, 0.0, 2)


@pytest.mark.browser
async def test_an_agent_reaches_no_key_no_private_address_and_no_reward(tmp_path, model, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "judge-81TzKq")
    assert read_secret("JUDGE_KEY") == "judge-81TzKq"
    (result,), run, _ = await roll_out(tmp_path, model, "stray")
    assert result.outcome.reward == 1
    text = (run.logs / "agents" / f"{result.id}.log").read_text()
    assert text.split() == ["key", "None", "refused", "403", "refused", "404"]


QUOTES, NO_SHELL = "quote it as a shell does", "no shell reads it"
NO_PROGRAMS = ["", "  ", "my agent.sh", "./plain.py", ".", "~/agent.sh", "MODE=1 ./agent.sh", "./none.sh"]


@pytest.mark.parametrize(("text", "hint"), [("{agent} 'agent.py", QUOTES), *((text, NO_SHELL) for text in NO_PROGRAMS)])
def test_a_command_that_can_t_be_started_is_refused_before_a_browser_starts(tmp_path, monkeypatch, text, hint):
    monkeypatch.chdir(tmp_path)
    for name, mode in (("my agent.sh", 0o700), ("agent.sh", 0o700), ("plain.py", 0o600)):
        Path(name).touch(mode)
    for words in ([sys.executable, "my agent.py", "-v"], ["./my agent.sh"], ["./agent.sh", "a|b"]):
        assert parse_command(shlex.join(words)) == words
    with pytest.raises(SettingsError) as caught:
        parse_command(text.format(agent=sys.executable))
    assert [hint in caught.value.hint for hint in (QUOTES, NO_SHELL)] == [hint == QUOTES, hint == NO_SHELL]
