"""MiniWoB++ environment: 130 seeded pages with built-in rewards, loaded from the wheel without server or network."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from webgym_cli.config.browser import BrowserSettings
from webgym_cli.config.model import Settings
from webgym_cli.environments.base import Environment, EnvironmentStep, RawObservation
from webgym_cli.environments.browser.actions import perform_action, point_at_elements
from webgym_cli.environments.browser.html import read_tree
from webgym_cli.environments.browser.marks import draw_marks
from webgym_cli.environments.browser.observe import MAX_ELEMENTS, observe_script, parse_elements
from webgym_cli.environments.browser.options import SessionOptions
from webgym_cli.environments.browser.pool import BrowserPool
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.environments.miniwob.oracle import OracleScene, next_action, require_expert
from webgym_cli.environments.miniwob.pages import (
    GC_ARGUMENT,
    HEIGHT,
    INIT_SCRIPT,
    SCENE_JS,
    SHOW_JS,
    START_JS,
    WIDTH,
    page_of,
    page_url,
)
from webgym_cli.errors import BoundaryError
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Score
from webgym_cli.records.webrl import AnyAction
from webgym_cli.util.optional import when

if TYPE_CHECKING:
    from playwright.async_api import Page

_REFUSED = {
    ActionName.NAVIGATE: "this page is the whole world: it can't be left",
    ActionName.GO_BACK: "this page is the whole world: there is nothing to go back to",
    ActionName.ZOOM: "this page is small: all of it is seen",
    **dict.fromkeys(
        (ActionName.GO_FORWARD, ActionName.RELOAD, ActionName.NEW_TAB, ActionName.SWITCH_TAB, ActionName.CLOSE_TAB),
        "this page is the whole world",
    ),
}

# WebGL is drawn on the CPU, by a process that takes 30 MB.
_WITHOUT_WEBGL = ("--disable-software-rasterizer",)
# Maximum number of episodes per context, which bounds its memory.
_EPISODES_PER_CONTEXT = 50
# Mouse position between episodes: outside the page.
_AWAY = (-20.0, -20.0)


def browser_for_pages(browser: BrowserSettings) -> BrowserSettings:
    """Return the browser settings for MiniWoB's pages, which use no WebGL and start a garbage collection themselves."""
    return browser.model_copy(update={"args": (GC_ARGUMENT, *_WITHOUT_WEBGL, *browser.args)})


class MiniWobPool:
    """Makes MiniWoB environments over one shared browser."""

    def __init__(self, settings: Settings, mode: InteractionMode | None = None) -> None:
        """`mode`: default that of the settings."""
        browser, context = settings.browser, settings.context_config
        self.mode, self.has_tree = mode or context.interaction_mode, context.observation == "tree"
        self.options = SessionOptions.of(
            browser,
            episode_timeout=settings.rollout.episode_timeout,
            width=WIDTH,
            height=HEIGHT,
            init_scripts=(observe_script(as_text=self.has_tree, watch_listeners=True), INIT_SCRIPT),
            # Pages write dates and times in the browser's locale and zone: the same everywhere.
            context_arguments={"timezone_id": "UTC"},
        )
        self.browsers = BrowserPool(browser_for_pages(browser))
        self._is_remote = bool(browser.cdp_urls)
        self._idle: list[BrowserSession] = []

    async def __aenter__(self) -> MiniWobPool:
        await self.browsers.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop the browser and wait until it is gone."""
        self._idle.clear()
        await self.browsers.__aexit__(*exc)

    async def take(self, url: str) -> BrowserSession:
        """Return a session that has loaded this page.

        A new context costs four times as much as a page load, and these pages are local, trusted and keep nothing,
        so contexts are used again for some episodes. The mouse is moved away: it would hover over the next page.
        """
        while self._idle:
            session = self._idle.pop()
            try:
                await session.move(*_AWAY)
                return await self._load_page(session, url)
            except BoundaryError:
                # The idle session's browser died or is broken: retry with a new session.
                continue
        return await self._load_page(await self.browsers.session(self.options), url)

    async def give_back(self, session: BrowserSession) -> None:
        """Keep the session for another episode, or close it if it can't be reused."""
        session.uses += 1
        if session.is_pristine and session.uses < _EPISODES_PER_CONTEXT:
            self._idle.append(session)
        else:
            await session.close()

    async def _load_page(self, session: BrowserSession, url: str) -> BrowserSession:
        try:
            await session.goto(url)
            if session.uses and self._is_remote:
                # `START_JS` can't collect garbage in a browser that was started without `GC_ARGUMENT`.
                async with session.guard("collecting garbage"):
                    await session.page.request_gc()
        except BaseException:
            await session.close()
            raise
        return session

    def new(self) -> MiniWobEnvironment:
        """Return a fresh environment; it takes its own browser context on `reset`."""
        return MiniWobEnvironment(self)


class MiniWobEnvironment(Environment):
    """One MiniWoB episode. A seed gives the same instruction, elements and first picture in every browser process."""

    def __init__(self, pool: MiniWobPool) -> None:
        self._pool = pool
        self._session: BrowserSession | None = None
        self._page = ""
        self._instruction = ""
        self._score: Score | None = None

    @property
    def page(self) -> Page | None:
        """The current page; None before `reset`."""
        return self._session.page if self._session else None

    async def reset(self, task: Task, seed: int) -> tuple[str, RawObservation]:
        """Start the episode of a seed on the task's page (its `start_url`, else its `id`)."""
        self._page = page_of(task)
        url = page_url(self._page)
        await self.close()
        self._score = None
        self._session = session = await self._pool.take(url)
        shown = await session.evaluate(START_JS, {"seed": seed, "limit": self._limit})
        if "listed" not in shown:
            detail = shown.get("error") or f"it ended at once: {shown.get('end')}"
            raise BoundaryError(FailureKind.ENVIRONMENT_ERROR, f"{self._page} did not start: {detail}")
        self._instruction = shown["instruction"]
        return self._instruction, await self._view(session, shown)

    async def step(self, action: AnyAction) -> EnvironmentStep:
        """Carry out one action; `navigate` and `go_back` are refused, since the page is the whole environment."""
        session = self._running()
        if self._score is not None:
            return EnvironmentStep(view=None, done=True, score=self._score)
        refusal = _REFUSED.get(action.name) if isinstance(action, Action) else None
        if refusal is None:
            refusal = await perform_action(session, action, lambda _: None)
        shown = await session.evaluate(SHOW_JS, {"limit": self._limit})
        if "end" in shown:
            self._score = _score(shown["end"])
            return EnvironmentStep(view=None, done=True, score=self._score, action_error=refusal)
        return EnvironmentStep(view=await self._view(session, shown), action_error=refusal)

    async def answer(self, text: str) -> Score | None:
        """Score an answered episode: these pages are solved by acting, so an answer alone is worth 0."""
        return self._score or Score(source="environment", value=0.0, detail="answered, but the page was not solved")

    async def expert_action(self) -> Action:
        """Return the expert's next action in the pool's interaction mode."""
        require_expert(self._page)
        seen = await self._running().evaluate(SCENE_JS, {"limit": MAX_ELEMENTS})
        elements = parse_elements(seen["listed"])
        action = next_action(self._page, OracleScene(self._instruction, elements, seen["pressed"]))
        is_marked = self._pool.mode is InteractionMode.SET_OF_MARKS
        return action if is_marked else point_at_elements(action, elements, (WIDTH, HEIGHT))

    async def close(self) -> None:
        """Give the browser context back."""
        session, self._session = self._session, None
        if session is not None:
            await self._pool.give_back(session)

    @property
    def _limit(self) -> int:
        return when(self._pool.mode is InteractionMode.SET_OF_MARKS, MAX_ELEMENTS)

    def _running(self) -> BrowserSession:
        if self._session is None:
            raise RuntimeError("the environment was not reset")
        return self._session

    async def _view(self, session: BrowserSession, shown: dict[str, Any]) -> RawObservation:
        png = await session.screenshot()
        elements = tuple(seen.element for seen in parse_elements(shown["listed"]))
        if self._pool.mode is InteractionMode.SET_OF_MARKS:
            png = await asyncio.to_thread(draw_marks, png, elements)
        tree = await read_tree(session, elements) if self._pool.has_tree else ""
        return RawObservation(url=shown["url"], title=shown["title"], png=png, elements=elements, tree=tree)


def _score(end: dict[str, Any]) -> Score:
    if "left" in end:
        return Score(source="environment", value=0.0, detail="the action left the task's page")
    # The pages give -1 for a failure, which would make it worse than an episode out of steps.
    raw = end["reward"]
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not math.isfinite(raw):
        raise BoundaryError(FailureKind.ENVIRONMENT_ERROR, f"the page gives a reward of {raw!r}, which is no number")
    return Score(source="environment", value=max(0.0, raw), detail=str(end["reason"]), extras={"raw_reward": raw})
