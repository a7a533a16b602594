"""A greedy episode for each group: how it is planned, asked for and stored."""

from collections import Counter
from itertools import groupby
from types import SimpleNamespace

import pytest

from tests.rollout.conftest import roll_stage
from tests.rollout.scripted import ScriptedAgent, failing
from tests.rollout.test_tools import Solver
from webgym_cli.agent.client.gate import ServedPolicy
from webgym_cli.errors import SettingsError, StoreError
from webgym_cli.loop.serving import Serving
from webgym_cli.records.sampling import Sampling
from webgym_cli.records.task import Split
from webgym_cli.rollout.agents import OracleAgent
from webgym_cli.rollout.episode import derive_sampling_seed
from webgym_cli.rollout.plan import PendingEpisode, plan_rollout
from webgym_cli.rollout.resources import PolicyEndpoint, open_agent
from webgym_cli.store.buffer import read_plan
from webgym_cli.util.files import write_lines

CHAINS, GREEDY = "agent.num_chains=2", "agent.greedy_chain=true"


def groups(plan, size=3):
    """Return the episodes of each group, in the order of the plan."""
    return [list(result) for _, result in groupby(plan.episodes, key=lambda episode: episode.position // size)]


def drawn(plan, *, greedy=True):
    return [(episode.task, episode.seed) for episode in plan.episodes if greedy or not episode.greedy]


def test_a_group_ends_with_a_greedy_episode_on_the_seed_of_its_first(world):
    world.load(CHAINS, GREEDY)
    plan = world.plan(9)
    assert [len(group) for group in groups(plan)] == [3, 3, 3]
    for first, second, last in groups(plan):
        assert (first.greedy, second.greedy, last.greedy) == (False, False, True)
        assert first.task == second.task == last.task and first.seed == last.seed != second.seed
    assert plan.notes == ()


def test_the_other_episodes_are_those_of_a_run_without_and_a_plan_with_them_does_not_follow_from_such_a_run(world):
    world.load(CHAINS, GREEDY)
    sampled = drawn(world.plan(9), greedy=False)
    world.load(CHAINS)
    with pytest.raises(StoreError, match="don't follow"):
        world.plan(10)
    world.run.plan(Split.TRAIN, 0).unlink()
    assert sampled == drawn(world.plan(6))


def test_a_group_that_is_cut_off_is_noted_until_the_plan_grows(world):
    world.load(CHAINS, GREEDY)
    cut = world.plan(7)
    assert cut.notes == ("no greedy episode yet in 1 of the groups (agent.greedy_chain): each has 3 episodes",)
    grown = world.plan(9)
    assert grown.episodes[:7] == cut.episodes
    assert [episode.greedy for episode in grown.episodes[6:]] == [False, False, True]
    assert grown.notes == ()


def test_each_band_of_a_ratio_has_its_own_groups(world):
    world.load(CHAINS, GREEDY, "tasks.sampler=ratio", 'tasks.difficulty_ratio={"easy": 1}')
    plan = world.plan(4)
    assert Counter(episode.greedy for episode in plan.episodes) == {False: 3, True: 1}
    assert len(plan.notes) == 1


def test_a_plan_of_before_goes_on_as_it_was(world):
    """Its lines don't have the field."""
    world.load(CHAINS)
    before = world.plan(3).episodes
    lines = [episode.model_dump(mode="json", exclude={"greedy"}) for episode in before]
    write_lines(world.run.plan(Split.TRAIN, 0), lines)
    assert world.plan(6).episodes[:3] == before
    assert not any(episode.greedy for episode in read_plan(world.run, Split.TRAIN, 0))


def test_evaluations_have_no_greedy_episodes(world):
    free = plan_rollout(world.run, world.load(), Split.TEST, 0, 6)
    assert plan_rollout(world.run, world.load(CHAINS, GREEDY), Split.TEST, 0, 6) == free


@pytest.mark.parametrize("greedy", [(), (GREEDY,)], ids=["chains", "greedy"])
def test_without_repeats_an_iteration_begins_with_a_group_of_its_own(world, greedy):
    """What is left of a group that the iteration before has begun could not be compared with anything."""
    world.load("agent.num_chains=3", *greedy, "tasks.no_repeats=true")
    size = world.settings.agent.group_size
    world.plan(size + 1)
    following = world.plan(size, iteration=1)
    assert [episode.position for episode in following.episodes] == list(range(2 * size, 3 * size))
    assert len({episode.task.id for episode in following.episodes}) == 1
    assert following.notes == ()


@pytest.mark.parametrize("repeats", ["false", "true"])
def test_demonstrations_come_once_and_leave_the_groups_as_they_were(world, repeats):
    world.load(CHAINS, GREEDY, f"tasks.no_repeats={repeats}")
    groups_alone = [(episode.task.id, episode.position) for episode in world.plan(6, iteration=1).episodes]
    world.run.plan(Split.TRAIN, 1).unlink()
    world.load(CHAINS, GREEDY, f"tasks.no_repeats={repeats}", "loop.demonstration_iterations=1")
    shown = world.plan(2).episodes
    assert [episode.position for episode in shown] == [0, 1]
    assert len({episode.task.id for episode in shown}) == 2
    assert not any(episode.greedy for episode in shown)
    assert [episode.position for episode in world.plan(3).episodes] == [0, 1, 2]
    assert [(episode.task.id, episode.position) for episode in world.plan(6, iteration=1).episodes] == groups_alone


async def rolled(tmp_path, host, acts, *overrides, split=Split.TRAIN):
    """Roll six questions out; `acts`: what `rollout.policy` says, given the host."""
    overrides = ["rollout.concurrency=4", "agent.num_chains=2", *overrides]
    await host.start()
    try:
        run, *_, stored = await roll_stage(tmp_path, acts(host), 6, *overrides, split=split)
    finally:
        await host.stop()
    greedy = {episode.id: episode.greedy for episode in read_plan(run, split, 0)}
    return {trajectory.id: (greedy[trajectory.id], trajectory) for trajectory in stored}


class Plain(Solver):
    """Answers whatever it is asked."""

    def __init__(self):
        super().__init__(lambda messages: "It is \\boxed{1}.")


LIMITS = ("policy_config.temperature=0.7", "policy_config.top_k=5", "policy_config.top_p=0.9")


async def test_greedy_episodes_are_asked_at_temperature_0_and_say_so(tmp_path):
    host = Plain()
    stored = await rolled(tmp_path, host, lambda host: host.url, GREEDY, *LIMITS)
    result = Counter((greedy, result.sampling) for greedy, result in stored.values())
    assert result == {(False, Sampling(temperature=0.7, top_k=5, top_p=0.9)): 4, (True, Sampling(temperature=0.0)): 2}
    counts = Counter((body["temperature"], body["top_k"], body["top_p"]) for body in host.requests)
    assert counts == {(0.7, 5, 0.9): 4, (0.0, -1, 1.0): 2}


async def test_each_response_has_a_seed_that_another_run_of_the_same_seed_gives_it_too(tmp_path):
    seeds = []
    for name, more in (("one", ()), ("again", ()), ("other", ("seed=9",))):
        await rolled(tmp_path / name, host := Plain(), lambda host: host.url, GREEDY, *LIMITS, *more)
        seeds.append({body["seed"] for body in host.requests if body["temperature"]})
        assert not any("seed" in body for body in host.requests if not body["temperature"])
    one, again, other = seeds
    assert one == again
    assert len(one) == len(one | again) == 4 and not one & other


def test_a_seed_depends_on_run_attempt_and_step_and_an_attempt_that_was_cut_off_is_sampled_again_as_it_was():
    # sha256("7/train-0000-00001/0")[:6], by hand
    assert derive_sampling_seed(7, "train-0000-00001", 0) == 0x9307BBEA1EBA
    others = {derive_sampling_seed(*key) for key in ((8, "t-1", 0), (7, "t-1", 0), (7, "t-1.1", 0), (7, "t-1", 1))}
    assert len(others) == 4
    for attempt, failures, name in ((0, 0, "t"), (2, 0, "t"), (2, 1, "t.1")):  # what did not fail was cancelled
        pending = PendingEpisode(SimpleNamespace(id="t"), attempt, failures)
        assert (pending.trajectory_id, pending.sampling_name) == (f"t.{attempt}" if attempt else "t", name)


async def test_test_episodes_are_sampled_as_they_are_told_and_training_episodes_as_ever(tmp_path):
    own = ("rollout.test_sampling.temperature=0", "rollout.test_sampling.top_k=-1")
    own_sampling, ever = Sampling(temperature=0.0, top_p=0.9), Sampling(temperature=0.7, top_k=5, top_p=0.9)
    for split, sampling in ((Split.TEST, own_sampling), (Split.TRAIN, ever)):
        stored = await rolled(tmp_path / split, host := Plain(), lambda host: host.url, *LIMITS, *own, split=split)
        assert {result.sampling for _, result in stored.values()} == {sampling}
        rows = {(body["temperature"], body["top_k"], body["top_p"]) for body in host.requests}
        assert rows == {(sampling.temperature, sampling.top_k, sampling.top_p)}


@pytest.mark.parametrize(
    ("arguments", "logprobs"), [("[]", "processed"), ('["--logprobs-mode=raw_logprobs"]', "raw")], ids=str
)
async def test_of_our_own_server_it_is_known_what_log_probabilities_are_of(tmp_path, monkeypatch, arguments, logprobs):
    host = Plain()

    async def current(serving):
        return (host.url,)

    monkeypatch.setattr(Serving, "current", current)
    stored = await rolled(tmp_path, host, lambda host: "vllm", GREEDY, f"serve.extra_args={arguments}")
    assert {result.sampling.logprobs for _, result in stored.values()} == {logprobs}


async def test_a_server_of_logits_is_refused_before_it_is_started(tmp_path):
    with pytest.raises(SettingsError, match="raw_logits gives no log-probabilities"):
        await rolled(tmp_path, Plain(), lambda host: "vllm", 'serve.extra_args=["--logprobs-mode", "raw_logits"]')


async def test_several_servers_are_asked_alike(world):
    hosts = Plain(), Plain()
    for host in hosts:
        await host.start()
    urls = tuple(host.url for host in hosts)
    acting = PolicyEndpoint(base_urls=urls, served=ServedPolicy(name="model"), logprobs="processed")
    async with open_agent(world.run, world.load(*LIMITS), acting) as agent:
        assert agent.sampling(greedy=True) == Sampling(temperature=0.0, logprobs="processed")
        assert agent.sampling(greedy=False).top_k == 5
    for host in hosts:
        await host.stop()


async def test_experts_sample_from_nothing(world):
    world.load("agent.num_chains=1", GREEDY)
    await world.roll(4, agent=OracleAgent(world.settings))
    assert [trajectory.sampling for trajectory in world.stored] == [None] * 4


@pytest.mark.browser
async def test_the_greedy_episode_begins_with_the_page_of_the_first(tmp_path):
    given = [CHAINS, GREEDY, "tasks.train=miniwob:click-button", "loop.demonstration_iterations=0"]
    run, *_, stored = await roll_stage(tmp_path, "oracle", 3, *given, files=("demo",))
    order = [episode.id for episode in read_plan(run, Split.TRAIN, 0)]
    stored.sort(key=lambda trajectory: order.index(trajectory.id))
    pages = [(trajectory.instruction, trajectory.steps[0].observation.screenshot) for trajectory in stored]
    assert pages[0] == pages[2] != pages[1]


async def test_an_episode_that_fails_at_once_says_what_it_would_have_been(world):
    world.load("agent.num_chains=1", GREEDY, "rollout.max_attempts=2", "rollout.concurrency=1")
    agent = ScriptedAgent()
    await world.roll(2, agent=agent, on_reset=failing(times=2))
    spoilt = world.stored[0]
    assert (spoilt.outcome.failure, spoilt.steps) == ("browser_crashed", ())
    greedy = Counter((trajectory.id.partition(".")[0], trajectory.sampling.greedy) for trajectory in world.stored)
    assert greedy == {("train-0000-00000", False): 2, ("train-0000-00001", True): 2}
    assert [prompt.greedy for prompt in agent.prompts] == [False, False, True, True]
