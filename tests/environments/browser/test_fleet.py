"""The fleet: several browsers, their caps and their retirement, and what a broken one costs."""

import asyncio
import contextlib

import psutil
import pytest

from tests.executable import alive, wait_until_gone
from webgym_cli.config.browser import BrowserSettings
from webgym_cli.environments.browser import process
from webgym_cli.environments.browser.options import SessionOptions
from webgym_cli.environments.browser.pool import BrowserPool
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.errors import BoundaryError
from webgym_cli.records.failure import FailureKind

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("chromium")]

SMALL = SessionOptions(width=200, height=150, action_timeout=5.0, navigation_timeout=10.0)


def browser_of(session: BrowserSession) -> int:
    return id(session.page.context.browser)


def kill_browser(pool: BrowserPool, session: BrowserSession) -> None:
    """Kill the browser of a session, all of its processes at once."""
    process = next(
        place.process
        for place in pool._places
        if place.process and place.process._browser is session.page.context.browser
    )
    for pid in process.processes():
        with contextlib.suppress(psutil.Error):
            if "chrom" in psutil.Process(pid).exe():
                psutil.Process(pid).kill()


def shares_of(sessions) -> list[int]:
    """Return how many of these sessions each browser has."""
    browsers = [browser_of(session) for session in sessions]
    return sorted(browsers.count(browser) for browser in set(browsers))


async def test_a_burst_is_shared_by_all_browsers():
    async with BrowserPool(BrowserSettings(processes=2)) as pool:
        sessions = await asyncio.gather(*(pool.session(SMALL) for _ in range(8)))
        assert shares_of(sessions) == [4, 4]
        await asyncio.gather(*(session.close() for session in sessions[:3]))
        more = [await pool.session(SMALL) for _ in range(3)]
        assert shares_of([*sessions[3:], *more]) == [4, 4]
        pids = pool.processes()
    assert alive(pids) == []


async def test_a_browser_is_replaced_after_so_many_contexts_and_ends_with_its_last(monkeypatch):
    monkeypatch.setattr(process, "MAX_CONTEXTS", 3)
    async with BrowserPool(BrowserSettings()) as pool:
        old = [await pool.session(SMALL) for _ in range(3)]
        before = pool.processes()
        fresh = await pool.session(SMALL)
        assert len({browser_of(session) for session in old}) == 1
        assert browser_of(fresh) != browser_of(old[0])
        assert [await session.evaluate("() => 1") for session in (*old, fresh)] == [1, 1, 1, 1]
        for session in old[:2]:
            await session.close()
        assert await old[2].evaluate("() => 2") == 2, "it works until its last session closes"
        await old[2].close()
        assert await asyncio.to_thread(wait_until_gone, before)
        assert await fresh.evaluate("() => 3") == 3


async def test_a_crowd_gets_exactly_so_many_contexts_of_each_browser(monkeypatch):
    monkeypatch.setattr(process, "MAX_CONTEXTS", 4)
    async with BrowserPool(BrowserSettings()) as pool:
        assert shares_of(await asyncio.gather(*(pool.session(SMALL) for _ in range(10)))) == [2, 4, 4]
        everything = pool.processes()
    assert alive(everything) == []


async def test_a_session_that_is_given_up_while_it_opens_does_not_count():
    async with BrowserPool(BrowserSettings()) as pool:
        only = pool._places[0].process
        opening = asyncio.create_task(pool.session(SMALL))
        while not only.sessions:  # noqa: ASYNC110  a count tells nobody that it grew
            await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert only.sessions == 0


async def test_an_old_browser_takes_no_new_session(monkeypatch):
    monkeypatch.setattr(process, "MAX_AGE", 0.03)
    async with BrowserPool(BrowserSettings()) as pool:
        first = await pool.session(SMALL)
        await asyncio.sleep(0.05)
        second = await pool.session(SMALL)
        assert browser_of(first) != browser_of(second)
        assert await first.evaluate("() => 1") == 1


async def test_a_context_ends_at_its_cap_whatever_is_done_with_it():
    async with BrowserPool(BrowserSettings()) as pool:
        short = SessionOptions(width=100, height=100, action_timeout=20.0, life_seconds=1.0)
        session = await pool.session(short)
        with pytest.raises(BoundaryError, match="cap") as failure:
            await session.evaluate("() => new Promise(() => {})")
        assert failure.value.kind is FailureKind.EPISODE_TIMEOUT
        with pytest.raises(BoundaryError):
            await session.screenshot()
        await session.close()
        assert pool._places[0].process.sessions == 0
        other = await pool.session(SMALL)
        assert await other.evaluate("() => 1") == 1


@pytest.mark.parametrize(("left", "reused"), [(0.6, True), (0.4, False)])
async def test_a_context_in_the_second_half_of_its_life_takes_no_further_episode(left, reused):
    async with BrowserPool(BrowserSettings()) as pool:
        session = await pool.session(SMALL)
        session._expiry.cancel()
        session._expiry = asyncio.get_running_loop().call_later(left * SMALL.life_seconds, session._expire)
        assert session.is_pristine is reused


@pytest.mark.parametrize(("args", "there"), [((), True), (("--disable-software-rasterizer",), False)])
async def test_webgl_is_there_unless_it_is_switched_off(args, there):
    async with BrowserPool(BrowserSettings(args=args)) as pool:
        session = await pool.session(SMALL)
        drawn = await session.evaluate("() => !!document.createElement('canvas').getContext('webgl')")
        assert drawn is there
        await session.close()


async def test_a_browser_that_dies_takes_only_its_own_episodes():
    async with BrowserPool(BrowserSettings(processes=2)) as pool:
        sessions = await asyncio.gather(*(pool.session(SMALL) for _ in range(4)))
        victim = sessions[0]
        others = [session for session in sessions if browser_of(session) != browser_of(victim)]
        waiting = asyncio.create_task(victim.evaluate("() => new Promise(() => {})"))
        await asyncio.sleep(0.1)
        kill_browser(pool, victim)
        with pytest.raises(BoundaryError) as failure:
            await waiting
        assert failure.value.kind is FailureKind.BROWSER_CRASHED
        assert [await session.evaluate("() => 1") for session in others] == [1, 1]
        again = await asyncio.gather(*(pool.session(SMALL) for _ in range(4)))
        assert [await session.evaluate("() => 1") for session in again] == [1, 1, 1, 1]
        assert len({browser_of(session) for session in again}) == 2, "only one is started again"
        everything = pool.processes()
    assert alive(everything) == []


async def test_closing_the_pool_ends_sessions_that_are_at_work():
    async with BrowserPool(BrowserSettings()) as pool:
        session = await pool.session(SMALL)
        busy = asyncio.create_task(session.evaluate("() => { for (;;); }"))
        await asyncio.sleep(0.1)
        pids = pool.processes()
    assert alive(pids) == []
    with pytest.raises(BoundaryError):
        await busy
    await session.close()
