"""Sessions of a client over a scripted world: turns, ends, failures and leases."""

import asyncio
import gc
from functools import partial

import pytest

from tests.rollout.scripted import CALL, Script, ScriptedPool, failing
from webgym_cli.config.load import load
from webgym_cli.env_server.sessions import ClientSession
from webgym_cli.errors import BoundaryError, StoreError, UsageError
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.task import Episode, Split, Task
from webgym_cli.records.trajectory import Score

EPISODE = Episode(id="e", split=Split.TRAIN, iteration=0, task=Task(id="click-test"), seed=1, max_steps=5)
ANSWER = '<tool_call>{"name": "computer_use", "arguments": {"action": "answer", "text": "x"}}</tool_call>'


def open_session(*overrides):
    return ClientSession(load(overrides=overrides))


@pytest.fixture
def session():
    return open_session()


@pytest.mark.parametrize("thinking", ["true", "false"])
async def test_a_client_plays_episode_after_episode(thinking):
    session, pool = (
        open_session(f"policy_config.thinking={thinking}", "policy_config.template=mine"),
        ScriptedPool(Script()),
    )
    for _ in range(2):
        first = await session.reset(EPISODE, pool)
        assert (first.instruction, first.outcome, first.action_error) == ("Click.", None, "")
        assert first.view.url == "http://a/" and session.is_playing
        assert (await session.step(CALL)).view.png != first.view.png
        last = await session.step(CALL)
        assert last.view is None and not session.is_playing
        assert (last.outcome.reward, last.outcome.stop) == (1.0, Stop.TERMINATED)
        with pytest.raises(UsageError, match="reset"):
            await session.step(CALL)
    assert [environment.closed for environment in pool.environments] == [1, 1]
    with pytest.raises(AttributeError):
        session.is_playing = True


@pytest.mark.parametrize("score", [Score(source="environment", value=0.0), None])
async def test_an_answer_ends_the_episode_and_an_unknown_reward_is_none(session, score):
    await session.reset(EPISODE, ScriptedPool(Script(answer_score=score)))
    outcome = (await session.step(ANSWER)).outcome
    assert (outcome.reward, outcome.answer) == (score and score.value, "x")


async def test_an_action_that_cannot_be_read_costs_a_step_and_is_explained(session):
    await session.reset(EPISODE.model_copy(update={"max_steps": 2}), ScriptedPool(Script()))
    turn = await session.step(CALL.replace("left_click", "left_clack"))
    assert "left_clack" in turn.action_error and turn.outcome is None
    assert (await session.step(CALL)).outcome.stop is Stop.STEP_LIMIT


@pytest.mark.parametrize("at", ["on_reset", "on_step"])
async def test_a_failure_is_an_error_and_the_session_goes_on(session, at):
    pool = ScriptedPool(Script(**{at: failing(times=1)}))
    with pytest.raises(BoundaryError, match="browser_crashed: click-test failed"):
        await session.reset(EPISODE, pool)
        await session.step(CALL)
    with pytest.raises(UsageError):
        await session.step(CALL)
    assert (await session.reset(EPISODE, pool)).view is not None
    await session.stop()


@pytest.mark.parametrize(
    ("make_error", "logged"),
    [
        (RuntimeError, [RuntimeError]),
        (partial(StoreError, "full"), [StoreError]),
        (partial(BoundaryError, FailureKind.ENVIRONMENT_ERROR, "down"), []),
        (ConnectionResetError, []),
        (asyncio.CancelledError, []),
    ],
)
async def test_of_errors_that_no_client_waits_for_the_unexpected_ones_are_logged(make_error, logged):
    kinds, clients, session, pool = [], [], open_session(), ScriptedPool(Script())

    def leave_and_fail():
        clients[0].cancel()
        raise make_error()

    pool.new = leave_and_fail
    clients.append(asyncio.create_task(session.reset(EPISODE, pool)))
    asyncio.get_running_loop().set_exception_handler(lambda _, context: kinds.append(type(context["exception"])))
    await asyncio.wait(clients)
    await session.stop()
    assert clients.pop().cancelled()
    del session, pool
    gc.collect()
    assert kinds == logged


async def test_a_client_that_thinks_too_long_gets_the_failure():
    session, closed = open_session("rollout.episode_timeout=0.01"), asyncio.Event()

    async def note(environment):
        closed.set()

    await session.reset(EPISODE, ScriptedPool(Script(on_close=note)))
    await closed.wait()
    with pytest.raises(BoundaryError) as caught:
        await session.step(CALL)
    assert caught.value.kind is FailureKind.EPISODE_TIMEOUT


async def test_a_reset_drops_the_running_episode(session):
    pool = ScriptedPool(Script())
    await session.reset(EPISODE, pool)
    await session.reset(EPISODE, pool)
    assert [environment.closed for environment in pool.environments] == [1, 0]
    assert pool.most == 1
    await session.stop()


async def test_a_closed_session_ends_its_action_and_never_plays_again(session):
    acting, closing, closed = asyncio.Event(), asyncio.Event(), []

    async def hang(environment):
        acting.set()
        await asyncio.Event().wait()

    async def close_slowly(environment):
        closing.set()
        await asyncio.sleep(0.01)
        closed.append("context")

    pool = ScriptedPool(Script(on_step=hang, on_close=close_slowly))
    await session.reset(EPISODE, pool)
    step = asyncio.create_task(session.step(CALL))
    await acting.wait()
    session.close(lambda: closed.append("session"))
    await closing.wait()
    session.close(lambda: closed.append("again"))  # by OpenEnv, after the server saw the connection's end
    with pytest.raises(BoundaryError, match="connect again") as caught:
        await step
    assert caught.value.kind is FailureKind.CANCELLED
    assert closed == ["context", "session", "again"]
    for later in (session.reset(EPISODE, pool), session.step(CALL)):
        with pytest.raises(UsageError, match="connect again"):
            await later
    assert len(pool.environments) == 1
