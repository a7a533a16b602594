import asyncio
import threading
from collections import Counter

import pytest

from tests.records.builders import new_run, png
from tests.rollout.scripted import ANSWER, CALL, ScriptedAgent, failing
from webgym_cli.agent.prompt import render, render_step
from webgym_cli.environments.base import RawObservation
from webgym_cli.errors import BoundaryError, JobError, StoreError, WebGymError
from webgym_cli.jobs.workers import MAX_CONSECUTIVE_FAILURES
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Element, ParseErrorKind, Score, Tab
from webgym_cli.report.facts import read_points
from webgym_cli.store.buffer import append, scan
from webgym_cli.store.index.query import open_index
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.tools.toolbox import CallResult


async def test_every_owed_episode_is_stored_with_its_images(world):
    summary = await world.roll(5)
    names = sorted(trajectory.episode for trajectory in world.stored)
    assert names == [f"train-0000-0000{number}" for number in range(5)]
    for trajectory in world.stored:
        assert (trajectory.outcome.reward, trajectory.outcome.stop, len(trajectory.steps)) == (1.0, Stop.TERMINATED, 2)
        assert [step.page_changed for step in trajectory.steps] == [True, None]
        for number, step in enumerate(trajectory.steps):
            assert ScreenshotStore(world.run.screenshots).get(step.observation.screenshot.sha256) == png(number)
    assert (summary["episodes"], summary["successes"], summary["owed"], summary["collected"]) == (5, 5, 0, 5)
    assert summary["interval"] == [0.5655, 1.0]  # Wilson: 5 / (5 + 1.959964^2) = 0.5655
    summary = await world.roll(5)  # nothing is left to do
    assert world.pool.environments == []
    assert (summary["episodes"], summary["collected"], len(world.stored)) == (5, 0, 5)
    await world.roll(7)
    assert len(world.pool.environments) == 2


async def test_prompts_can_be_made_again_where_the_environment_has_no_instruction(world):
    world.write_tasks(
        [{"id": "t0", "environment": "web", "instruction": "From the task.", "start_url": "https://a.com/"}]
    )
    await world.roll(1, instruction="")
    (stored,) = world.stored
    assert stored.instruction == "From the task."
    assert render_step(stored, 0).digest == stored.steps[0].prompt_digest


async def test_a_slow_episode_holds_up_no_other(world):
    """The slow one may end only after all others have: with a barrier this would never come to an end."""
    others_done = asyncio.Event()

    async def slow(environment):
        if environment is world.pool.environments[0]:
            async with asyncio.timeout(30):
                await others_done.wait()

    def count(event):
        world.events.append(event)
        if len(world.events_named("trajectory")) == 11:
            others_done.set()

    await world.roll(12, on_step=slow, sink=count)
    assert world.stored[-1].episode == world.plan(12).episodes[0].id


async def test_a_failure_is_stored_without_a_reward_and_tried_again(world):
    summary = await world.roll(4, on_step=failing(times=2, tasks="t1"))
    attempts = world.of("t1")
    shown = [(attempt.attempt, attempt.outcome.failure, attempt.outcome.reward) for attempt in attempts]
    assert shown == [(0, "browser_crashed", None), (1, "browser_crashed", None), (2, None, 1.0)]
    episode = attempts[0].episode
    assert [attempt.id for attempt in attempts] == [episode, f"{episode}.1", f"{episode}.2"]
    assert attempts[0].outcome.failure_detail == "t1 failed"
    assert [len(attempt.steps) for attempt in attempts] == [1, 1, 2], "what the policy answered is kept"
    assert [environment.closed for environment in world.pool.environments] == [1] * 6
    assert (summary["episodes"], summary["success_rate"], summary["owed"]) == (4, 1.0, 0)
    assert summary["failures"] == {"browser_crashed": 2}


def raising(error, *, times=10**6, tasks=""):
    """Return a hook that raises an unexpected exception in each task's first attempts."""
    fail = failing(times=times, tasks=tasks)

    async def hook(environment):
        try:
            await fail(environment)
        except BoundaryError:
            raise error from None

    return hook


UNEXPECTED = [KeyError("no such key"), RecursionError("too deep"), OSError(36, "Name too long"), TimeoutError("late")]


@pytest.mark.parametrize("error", UNEXPECTED, ids=repr)
@pytest.mark.parametrize("place", ["on_reset", "on_step", "on_close"])
async def test_an_unexpected_exception_fails_only_its_episode(world, place, error):
    summary = await world.roll(4, **{place: raising(error, times=1, tasks="t1")})
    failed, again = world.of("t1")
    assert (failed.outcome.failure, failed.outcome.reward) == (FailureKind.INTERNAL_ERROR, None)
    assert type(error).__name__ in failed.outcome.failure_detail and ".py:" in failed.outcome.failure_detail
    assert again.outcome.reward == 1.0
    assert (summary["episodes"], summary["owed"], summary["failures"]) == (4, 0, {"internal_error": 1})
    assert [event for event in world.events_named("note") if failed.id in event["message"]]


async def test_exceptions_of_all_episodes_end_the_command_with_their_reason(world):
    world.load("rollout.concurrency=8")
    with pytest.raises(WebGymError, match=r"internal_error.*no such key"):
        await world.roll(20, on_step=raising(KeyError("no such key")))
    assert {trajectory.outcome.reward for trajectory in world.stored} == {None}
    summary = await world.roll(20)
    assert (summary["episodes"], summary["owed"]) == (20, 0)


async def test_a_picture_that_is_none_fails_only_its_episode(world):
    async def spoil(environment):
        if environment.task.id == "t1":
            environment.view = lambda: RawObservation(url="http://a/", title="", png=b"no picture")

    summary = await world.roll(4, on_reset=spoil)
    assert (summary["episodes"], summary["failures"]) == (3, {"internal_error": 3})


async def test_texts_that_no_file_can_hold_are_stored_with_question_marks(world):
    bad = "a\ud800\x00\udc80"
    detail = Score(source="environment", value=1.0, detail=bad)

    async def spoil(environment):
        text = Element(id=0, role=bad, name=bad, value=bad, box=(0, 0, 1, 1))
        more = {"notices": (bad,), "results": (CallResult(bad, bad),), "tabs": (Tab(url=bad, title=bad),)}
        environment.view = lambda: RawObservation(
            url=f"http://a/{bad}", title=bad, png=png(0), elements=(text,), html=bad * 100_000, **more
        )

    await world.roll(2, on_reset=spoil, instruction=bad, score=detail)
    assert len(world.stored) == 2
    for trajectory in world.stored:
        seen = trajectory.steps[1].observation
        assert (seen.title, seen.elements[0].name, seen.results[0].text) == ("a?\x00?",) * 3
        assert (len(seen.html), trajectory.outcome.scores[0].detail) == (100_000, "a?\x00?")
        digests = [render_step(trajectory, step.index).digest for step in trajectory.steps]
        assert digests == [step.prompt_digest for step in trajectory.steps]


async def test_an_episode_is_given_up_after_its_attempts(world):
    summary = await world.roll(4, on_reset=failing(FailureKind.PAGE_TIMEOUT, tasks="t1"))
    assert Counter(trajectory.task.id for trajectory in world.stored) == {"t0": 1, "t1": 3, "t2": 1, "t3": 1}
    assert (summary["episodes"], summary["owed"], summary["given_up"]) == (3, 0, 1)
    plan = world.plan(4)
    assert (plan.owed, plan.given_up) == ((), 1)


@pytest.mark.parametrize(
    "kind", ["policy_unavailable", "browser_crashed", "environment_error", "environment_unavailable"]
)
async def test_an_outage_leaves_its_episodes_pending(world, kind):
    for _ in range(3):
        with pytest.raises(WebGymError, match="no episode could be collected: 6 x "):
            await world.roll(2, on_reset=failing(FailureKind(kind)))
        assert (len(world.plan(2).owed), world.plan(2).given_up) == (2, 0)
    assert (await world.roll(2))["episodes"] == 2
    assert len({trajectory.id for trajectory in world.stored}) == 20


@pytest.mark.parametrize("kind", ["navigation_failed", "start_page_failed", "page_timeout"])
async def test_an_outage_of_the_network_is_no_attempt(world, kind):
    with pytest.raises(WebGymError, match="x network_unavailable") as caught:
        await world.roll(2, on_reset=failing(FailureKind(kind)), outage="a.test: Network is unreachable")
    assert "network is back" in caught.value.hint
    assert (len(world.plan(2).owed), world.plan(2).given_up) == (2, 0)
    assert set(world.failures) == {FailureKind.NETWORK_UNAVAILABLE}
    assert (await world.roll(2))["episodes"] == 2


async def test_an_episode_that_an_outage_makes_late_has_used_no_attempt(world):
    async def hang(environment):
        await asyncio.sleep(60)

    world.load("rollout.episode_timeout=0.1")
    with pytest.raises(WebGymError) as caught:
        await world.roll(1, on_step=hang, outage="none of the last 3 hosts could be reached")
    assert "once the network is back, run the same command again" in caught.value.hint
    assert (len(world.plan(1).owed), world.plan(1).given_up) == (1, 0)


@pytest.mark.parametrize("kind", ["address_refused", "authentication_required"])
async def test_what_a_setting_refuses_is_pending_once_the_setting_is_mended(world, kind):
    summary = await world.roll(4, on_reset=failing(FailureKind(kind), tasks="t1"))
    assert summary["failures"] == {kind: 1}, "the same command does not try it again"
    assert (await world.roll(4))["episodes"] == 4


async def test_the_environments_own_error_after_its_start_is_an_attempt(world):
    await world.roll(4, on_step=failing(FailureKind.ENVIRONMENT_ERROR, tasks="t1"))
    assert [one.outcome.failure for one in world.of("t1")] == ["environment_error"] * 3
    assert world.plan(4).given_up == 1


@pytest.mark.parametrize(("split", "option"), [(Split.TRAIN, ""), (Split.TEST, " --split test")])
async def test_all_given_up_names_the_command_that_tries_them_again(world, split, option):
    command = f"webgym rollout {world.run.root}{option} --again given-up"
    with pytest.raises(WebGymError, match="6 x page_timeout") as caught:
        await world.roll(plan=world.plan(2, split), on_reset=failing(FailureKind.PAGE_TIMEOUT))
    assert f"run {command}" in caught.value.hint, "the same command again would try none of them"
    plan = world.plan(2, split)
    assert (plan.owed, plan.given_up) == ((), 2)
    with pytest.raises(WebGymError, match="all are given up") as caught:
        await world.roll(plan=plan)
    assert caught.value.hint == command


async def test_an_episode_that_takes_too_long_has_failed(world):
    world.load("rollout.episode_timeout=1", "rollout.max_attempts=1")

    async def hangs(environment):
        if environment.task.id == "t1":
            await asyncio.sleep(30)

    await world.roll(4, on_step=hangs)
    (slow,) = world.of("t1")
    assert (slow.outcome.failure, slow.outcome.failure_detail) == (FailureKind.EPISODE_TIMEOUT, "longer than 1 s")


async def test_failures_in_a_row_end_the_rollout_and_scattered_ones_do_not(world):
    with pytest.raises(WebGymError, match=f"^{MAX_CONSECUTIVE_FAILURES} .*browser_crashed") as caught:
        await world.roll(50, on_reset=failing())
    assert "webgym doctor" in caught.value.hint
    counted = [failure for failure in world.failures if failure is not FailureKind.CANCELLED]
    assert MAX_CONSECUTIVE_FAILURES <= len(counted) < MAX_CONSECUTIVE_FAILURES + 2  # two ran at once
    world.run = new_run(world.run.root.with_name("another"))
    world.load("rollout.concurrency=1")
    summary = await world.roll(40, on_reset=failing(tasks="t1"))
    assert (summary["episodes"], summary["failures"]) == (30, {"browser_crashed": 30})


async def test_what_all_episodes_need_may_die(world):
    async def dies():
        await asyncio.sleep(0.05)
        raise JobError("vLLM died")

    async def hangs(environment):
        await asyncio.sleep(30)

    with pytest.raises(JobError, match="vLLM died"):
        await world.roll(4, on_step=hangs, watch=dies())
    assert set(world.failures) == {FailureKind.CANCELLED}


async def test_a_cancelled_rollout_keeps_what_was_done_and_owes_it(world):
    reached = asyncio.Event()

    async def hangs(environment):
        if len(environment.actions) == 1:
            reached.set()
            await asyncio.sleep(30)

    task = asyncio.ensure_future(world.roll(3, on_step=hangs, steps=5))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.outcomes == {(FailureKind.CANCELLED, None)}
    assert len(world.stored) == 2  # as many as ran at once
    assert max(len(trajectory.steps) for trajectory in world.stored) == 2  # the last one was cut off
    assert all(environment.closed == 1 for environment in world.pool.environments)
    plan = world.plan(3)
    assert (len(plan.owed), plan.done, sum(owed.failures for owed in plan.owed)) == (3, 0, 0)
    assert (await world.roll(3))["episodes"] == 3


async def test_a_run_that_is_moved_meanwhile_is_not_made_anew(world, tmp_path):
    def move(event):
        if event["event"] == "trajectory":
            world.run.root.rename(tmp_path / "moved")

    with pytest.raises(StoreError):
        await world.roll(sink=move)
    assert world.stored == []
    assert len(list(scan(RunDir(tmp_path / "moved"), Split.TRAIN, 0))) == 1


SERVER = "http://HOST:8000/v1/"


async def test_an_evaluation_counts_only_the_episodes_of_its_own_policy(world):
    async def evaluate(policy, solved):
        plan = world.plan(3, Split.TEST, policy=policy)
        score = Score(source="environment", value=float(solved))
        summary = await world.roll(plan=plan, agent=ScriptedAgent(name=plan.policy_name), score=score)
        return summary["policy"], summary["collected"], summary["episodes"], summary["success_rate"], summary["owed"]

    served = "policy at http://host:8000/v1"
    assert await evaluate(SERVER, solved=True) == (served, 3, 3, 1.0, 0)
    assert await evaluate("oracle", solved=True) == ("oracle", 3, 3, 1.0, 0)
    base = world.settings.policy_config.base_model
    assert await evaluate("vllm", solved=False) == (base, 3, 3, 0.0, 0), "version 0 is not the server's"
    assert await evaluate("vllm", solved=True) == (base, 0, 3, 0.0, 0)
    assert await evaluate("http://host:8000/v1", solved=False) == (served, 0, 3, 1.0, 0)
    assert len({trajectory.id for trajectory in scan(world.run, Split.TEST, 0)}) == 9
    with open_index(world.run) as index:
        points = {point["series"]: point["success_rate"] for point in read_points(index) if point["band"] is None}
    assert points == {"test": 0.0, "demonstrations": 1.0, f"test of {served}": 1.0}


async def test_training_episodes_of_others_are_data_but_no_result_of_the_policy(world):
    teacher = world.plan(2, policy=SERVER)
    await world.roll(plan=teacher, agent=ScriptedAgent(name=teacher.policy_name))
    plan = world.plan(4)
    assert (len(plan.owed), plan.done) == (2, 2)
    unsolved = Score(source="environment", value=0.0)
    summary = await world.roll(plan=plan, agent=ScriptedAgent(name=plan.policy_name), score=unsolved)
    assert (summary["episodes"], summary["success_rate"], summary["owed"]) == (2, 0.0, 0)
    (beside,) = list(scan(world.run, Split.TRAIN, 0))[:1]  # recorded by a person, in no plan
    append(world.run, beside.model_copy(update={"id": "train-0000-r1", "episode": "train-0000-r1"}))
    assert (await world.roll(plan=world.plan(4)))["owed"] == 0


def test_servers_have_one_name_in_any_order(world):
    for policy, name in {
        "http://b:2/v1,http://A:1/v1": "policy at http://a:1/v1, http://b:2/v1",
        "https://h/v1": "policy at https://h:443/v1",
    }.items():
        assert world.plan(1, policy=policy).policy_name == name


@pytest.mark.parametrize(
    ("limit", "replies", "steps"),
    [
        ("rollout.max_parse_errors=2", ("no call", CALL, "no call", "none either", CALL), 4),
        ("rollout.max_repeated_actions=3", (CALL, "no call", CALL, CALL, CALL), 5),
        ("rollout.max_parse_errors=3", ("no call", "none", CALL, "no call", "none", CALL), 9),  # the step limit
    ],
)
async def test_a_policy_that_is_stuck_ends_its_episode_with_a_reward_of_0(world, limit, replies, steps):
    world.file.write_text('{"id": "click-test", "environment": "miniwob"}\n')
    world.load("rollout.train_max_steps.easy=9", limit)
    await world.roll(1, steps=20, agent=ScriptedAgent(replies))
    (stored,) = world.stored
    stop = Stop.STUCK if steps < 9 else Stop.STEP_LIMIT
    assert (stored.outcome.reward, stored.outcome.stop, len(stored.steps)) == (0.0, stop, steps)
    assert stored.outcome.success is False


async def test_what_webarena_came_to_without_a_score_waits_for_a_reward_model(world):
    world.load("rollout.train_max_steps.easy=3")
    await world.roll(1, steps=9)
    (stored,) = world.stored
    assert (stored.outcome.reward, stored.outcome.stop, stored.awaits_judgement) == (None, Stop.STEP_LIMIT, True)


async def test_a_parse_error_takes_a_step_and_leaves_the_environment_alone(world):
    await world.roll(1, agent=ScriptedAgent(("no call", "<tool_call>{</tool_call>", CALL)))
    (stored,) = world.stored
    errors = [step.parse_error for step in stored.steps]
    assert errors == [ParseErrorKind.NO_TOOL_CALL, ParseErrorKind.INVALID_JSON, None, None]
    assert [step.page_changed for step in stored.steps] == [False, False, True, None]
    assert len(world.pool.environments[0].actions) == 2


async def test_a_cut_reply_is_told_from_an_empty_one(world):
    world.load("rollout.train_max_steps.easy=1")
    await world.roll(1, agent=ScriptedAgent(("I would",), finish_reason="length"))
    assert world.stored[0].steps[0].parse_error is ParseErrorKind.TRUNCATED


async def test_an_answer_ends_the_episode_without_an_action(world):
    await world.roll(1, agent=ScriptedAgent((CALL, ANSWER)), answer_score=Score(source="environment", value=0.25))
    (stored,) = world.stored
    assert (stored.outcome.stop, stored.outcome.answer, stored.outcome.reward) == (Stop.ANSWERED, "42", 0.25)
    assert len(world.pool.environments[0].actions) == 1


@pytest.mark.parametrize("raw", [-1.0, 0.4, 1.0, 3.0])
async def test_the_reward_is_the_score_and_the_score_is_kept(world, raw):
    await world.roll(1, score=Score(source="environment", value=raw))
    (stored,) = world.stored
    assert (stored.outcome.reward, stored.outcome.scores[0].value) == (raw, raw)


@pytest.mark.parametrize("raw", [float("nan"), float("inf"), float("-inf")])
async def test_a_score_that_is_not_finite_is_a_failure_and_no_success(world, raw):
    with pytest.raises(WebGymError, match="can't be stored: reward"):
        await world.roll(1, score=Score.model_construct(source="environment", value=raw, extras={}))
    assert world.outcomes == {(FailureKind.ENVIRONMENT_ERROR, None)}


async def test_the_clock_of_an_episode_stands_while_the_policy_s_weights_change(world):
    world.load("rollout.episode_timeout=0.3", "rollout.max_attempts=1")

    async def change():
        async with world.gate.closed():
            await asyncio.sleep(0.8)

    changing = asyncio.create_task(change())
    await asyncio.sleep(0)
    await world.roll(2)
    await changing
    assert world.failures == [None, None]


async def test_a_prompt_that_takes_long_to_render_holds_up_no_other_episode(world, monkeypatch):
    loop, went_on = asyncio.get_running_loop(), []

    def render_slowly(*parts):
        ticked = threading.Event()
        loop.call_soon_threadsafe(ticked.set)
        went_on.append(ticked.wait(20))
        return render(*parts)

    monkeypatch.setattr("webgym_cli.rollout.episode.render", render_slowly)
    await world.roll(2)
    assert went_on == [True] * 4
