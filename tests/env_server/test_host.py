"""The host of sessions: which episode a client gets, and which settings can be served."""

import asyncio

import pytest

from tests.rollout.scripted import Script, ScriptedPool
from webgym_cli.config.load import load
from webgym_cli.env_server.host import SessionHost
from webgym_cli.errors import BoundaryError, SettingsError, UsageError
from webgym_cli.records.task import Split


@pytest.fixture(scope="module")
def host():
    return SessionHost(load(overrides=["tasks.train=sites:all", "tasks.test=sites:shop-cheapest"]))


def plan(host, split="train", index=None, task_id=None, seed=None):
    return host.plan_episode(split=split, index=index, task_id=task_id, seed=seed)


def test_the_seed_draws_the_task_and_is_drawn_itself(host):
    assert plan(host, seed=20).task == plan(host, index=20 % len(host.tasks[Split.TRAIN])).task
    assert len({plan(host).seed for _ in range(5)}) == 5
    assert len({plan(host, seed=1).id for _ in range(5)}) == 5
    # a reset hook would give a host that is started anew the tenants of the episodes before
    assert len({plan(SessionHost(host.settings), seed=1).id for _ in range(2)}) == 2


def test_a_task_is_named_by_id_or_index_in_a_split(host):
    assert plan(host, task_id="shop-cheapest", seed=7).seed == 7
    test = plan(host, "test", index=0)
    assert (test.task.id, test.split) == ("shop-cheapest", Split.TEST)
    assert test.max_steps > plan(host, task_id="shop-cheapest").max_steps


@pytest.mark.parametrize(
    "given",
    [
        *({"seed": seed} for seed in (-1, 2**32, True, 1.0, "1", [], float("nan"))),
        *({"index": index} for index in (-1, 10**9, False, 0.0, "0", {})),
        *({"task_id": name} for name in ("", "nobody", 3, "\ud800")),
        *({"split": split} for split in ("validation", "", None, [])),
    ],
)
def test_what_no_episode_has_is_refused(host, given):
    with pytest.raises(UsageError):
        plan(host, **given)


def test_an_action_becomes_the_call_of_the_action_set(host):
    assert host.function["name"] == "computer_use"


def serve_scripted(script, *overrides):
    """Return a host with a scripted pool."""
    host, pool = SessionHost(load(overrides=["tasks.train=sites:all", *overrides])), ScriptedPool(script)
    host._pools["sites"] = pool
    return host, pool


async def test_short_memory_refuses_further_episodes_but_never_the_only_one():
    host, _ = serve_scripted(Script(), "browser.memory_reserve_mb=100000000")
    one, two = host.open_session(), host.open_session()
    for _ in range(2):
        await host.start_episode(one, plan(host, index=0))
    with pytest.raises(BoundaryError, match="memory_reserve_mb"):
        await host.start_episode(two, plan(host, index=0))
    await one.stop()
    await host.start_episode(two, plan(host, index=0))
    await two.stop()


async def test_no_more_episodes_start_at_once_than_a_rollout_would_run():
    may_start, starting = asyncio.Event(), []

    async def start(environment):
        starting.append(environment)
        await may_start.wait()

    host, pool = serve_scripted(Script(on_reset=start), "rollout.concurrency=2")
    sessions = [host.open_session() for _ in range(5)]
    resets = [asyncio.create_task(host.start_episode(one, plan(host, index=0))) for one in sessions]
    async with asyncio.timeout(30):
        while len(starting) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(starting) == 2
    host.close_session(sessions[4])  # a client that leaves while it waits
    may_start.set()
    ends = await asyncio.gather(*resets, return_exceptions=True)
    assert [isinstance(end, UsageError) for end in ends] == [False] * 4 + [True]
    assert len(starting) == len(pool.environments) == 4
    for session in sessions:
        await session.stop()


async def test_a_client_that_starts_anew_leaves_its_site_to_those_that_wait_for_it():
    site = asyncio.Lock()

    async def leave(environment):
        site.release()

    async def enter(_):
        await site.acquire()

    host, pool = serve_scripted(Script(on_reset=enter, on_close=leave), "rollout.concurrency=1")
    one, two = host.open_session(), host.open_session()
    await host.start_episode(one, plan(host, index=0))
    waiting = asyncio.create_task(host.start_episode(two, plan(host, index=0)))
    async with asyncio.timeout(30):
        while len(pool.started) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        again = asyncio.create_task(host.start_episode(one, plan(host, index=0)))
        assert (await waiting).view is not None
        await two.stop()
        assert (await again).view is not None
    await one.stop()


@pytest.mark.parametrize("version", ["webrl", "ui_tars"])
def test_an_action_set_without_named_arguments_is_refused(version):
    with pytest.raises(SettingsError, match=version):
        SessionHost(load(overrides=[f"context_config.prompt_version={version}"]))


async def test_tasks_without_pages_are_refused():
    with pytest.raises(UsageError, match="no pages"):
        async with SessionHost(load(overrides=["tasks.train=arithmetic:test"])):
            pass
