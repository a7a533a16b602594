"""Waits for the effects of an action: navigations, requests, popups, busy indicators."""

from __future__ import annotations

import asyncio

from webgym_cli.environments.browser.frames import WAIT_UNTIL_IDLE, WAITS_JS, wait_in_frames
from webgym_cli.environments.browser.page_activity import PageActivity
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.jobs.workers import race

_SPLASH_OF = f"{WAITS_JS}.splashOf"
_WAIT_UNTIL_IDLE = f"""async ([limit, isStart]) => {{
  const {{ copied }} = await ({WAIT_UNTIL_IDLE})(limit);
  return {{ splash: {_SPLASH_OF}(isStart), copied }};
}}"""
# Maximum number of successive popups followed after an action.
_POPUPS = 4
# A page with only a busy indicator is waited for this many times longer, once per episode; a start page without any
# control that may show some later is waited for as long as one that is loading.
_SPLASH_SHARES = {"busy": 4.0, "bare": 1.0}
_SPLASH_PAUSE = 0.2
# Poll interval in seconds.
_LOOK = 0.25
# Maximum number of rounds of waiting for traffic and then for a stable page.
_TURNS = 4


class PageSettler:
    """Waits for the pages of one episode."""

    def __init__(self, max_idle_wait: float) -> None:
        """`max_idle_wait`: seconds for a page that is still loading or moving."""
        self._max_idle_wait = max_idle_wait
        self._awaits_splash = self._is_start = True

    async def settle(self, session: BrowserSession) -> str | None:
        """Wait, within limits, for the effects of an action. Returns a message if a page has not loaded by then."""
        late = None
        for _ in range(_POPUPS):
            await session.wait_for_popups()
            page = session.page
            late = await self._settle_page(session)
            if session.page is page:
                break
        self._is_start = False
        return late

    async def _settle_page(self, session: BrowserSession) -> str | None:
        limit, clock = session.options.navigation_timeout, asyncio.get_running_loop()
        traffic = await session.traffic()
        arrives, end = clock.time() + limit, clock.time() + self._max_idle_wait
        for _ in range(_TURNS):
            while traffic.navigating and clock.time() < arrives:
                await traffic.change(arrives - clock.time())
                end = clock.time() + self._max_idle_wait
            if traffic.navigating:
                await session.stop_loading()
                return f"the page did not load within {limit:g} s"
            lives, splash = await self._wait_until_idle(session, traffic, max(0.0, end - clock.time()))
            was_busy = False
            while lives and traffic.busy and not traffic.navigating and clock.time() < end:
                was_busy = True
                await traffic.change(min(_LOOK, end - clock.time()))
            if splash and self._awaits_splash:
                await self._await_splash(session, splash)
                end = clock.time() + self._max_idle_wait
            elif lives and not traffic.navigating and (not was_busy or clock.time() >= end):
                break  # a response is rendered only once the page is stable again
            traffic = await session.traffic()
        return None

    async def _await_splash(self, session: BrowserSession, splash: str) -> None:
        """Wait for a page that shows nothing to act on. One that stays so is not waited for again."""
        clock = asyncio.get_running_loop()
        begun = clock.time()
        while splash and clock.time() < begun + self._max_idle_wait * _SPLASH_SHARES[splash]:
            await asyncio.sleep(_SPLASH_PAUSE)
            splash = str(await session.evaluate(_SPLASH_OF, self._is_start))
        self._is_start = False
        self._awaits_splash = splash != "busy"

    async def _wait_until_idle(
        self, session: BrowserSession, traffic: PageActivity, seconds: float
    ) -> tuple[bool, str]:
        """Wait until the page is idle. Returns whether it is alive, and what it waits for if it shows no control.

        A page that is being replaced runs no scripts.
        """
        asking = session.evaluate_once(_WAIT_UNTIL_IDLE, [seconds * 1000, self._is_start], seconds)
        waiting = asyncio.gather(asking, wait_in_frames(session, seconds))
        async with race(waiting, traffic.until(lambda: traffic.navigating)) as (waited, _):
            lives, seen = waited.result()[0] if waited.done() else (False, None)
            if seen is None:
                return lives, ""
            session.pages.clipboard = seen["copied"] or session.pages.clipboard
            return lives, seen["splash"] or ""
