"""Open-web environment: one isolated browser context per episode, every address checked, pages untrusted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from webgym_cli.environments.base import AgentAccess, Environment, EnvironmentStep, RawObservation
from webgym_cli.environments.browser.actions import list_tabs, perform_action, point_at_elements, tell_exception
from webgym_cli.environments.browser.egress_proxy import EgressProxy
from webgym_cli.environments.browser.failures import reading_page
from webgym_cli.environments.browser.frames import SILENT_FRAME
from webgym_cli.environments.browser.har import record_har
from webgym_cli.environments.browser.html import format_state, read_page, read_tree
from webgym_cli.environments.browser.marks import draw_marks
from webgym_cli.environments.browser.observe import (
    MAX_ELEMENTS,
    ElementSnapshot,
    is_blank,
    list_elements,
    look_at,
    measure_extent,
    parse_elements,
    take_snapshot,
)
from webgym_cli.environments.browser.options import SessionOptions
from webgym_cli.environments.browser.page_activity import PageActivity
from webgym_cli.environments.browser.pages import FILE_REQUEST
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.environments.episode_start import EpisodeStart
from webgym_cli.environments.sites.site_expert import ExpertRun, make_expert
from webgym_cli.environments.sites.site_setup import set_up_site
from webgym_cli.environments.web.resources import WebResources
from webgym_cli.environments.web.settling import PageSettler, arrive, find_refusal
from webgym_cli.environments.web.zoom import zoom_into
from webgym_cli.errors import BoundaryError
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import PageState
from webgym_cli.records.webrl import AnyAction
from webgym_cli.tasks.files import UPLOADS
from webgym_cli.util.optional import when

if TYPE_CHECKING:
    from playwright.async_api import Page

_STAYED = "the page asks whether to leave it, as changes may be lost; it was not left: the same action again leaves it"


class WebEnvironment(Environment):
    """One episode on the open web. The reward comes from a judge."""

    def __init__(self, pool: WebResources) -> None:
        self._pool = pool
        self._session: BrowserSession | None = None
        self._noticed, self._is_stable, self._refused, self._errors = (0, 0), True, "", 0
        self._held = AsyncExitStack()
        self._titles: dict[Page, str] = {}
        self._settler = PageSettler(pool.max_idle_wait)
        self._agent_proxy: EgressProxy | None = None
        self._expert: ExpertRun | None = None
        self._site_url = ""
        self.start = EpisodeStart()
        """What the site's reset, and the task's set-up function, prepared for the running episode."""

    @property
    def page(self) -> Page | None:
        """The current page; None before `reset`."""
        return self._session.page if self._session else None

    async def reset(self, task: Task, seed: int) -> tuple[str, RawObservation]:
        """Open the task's start page in a fresh context.

        Raises `NAVIGATION_FAILED` for a transient failure, `START_PAGE_FAILED` for a permanent one,
        `AUTHENTICATION_REQUIRED` without credentials, and `SITE_BLOCKED` if the site blocks the browser.
        """
        await self.close()
        self._expert = make_expert(task, seed, self._pool.settings.agent.reward_timeout)
        self.start = await self._prepare(task, seed)
        self._site_url = when(task.site, self.start.start_url)
        self._noticed, self._is_stable, self._errors = (0, 0), True, 0
        self._settler = PageSettler(self._pool.max_idle_wait)
        options = record_har(await self._options(task, seed), self.har, self._held)
        self._session = session = await self._pool.browsers.session(options)
        if self.start.cookies:
            await session.add_cookies(self.start.cookies)
        _, view = await self._observe(session, partial(self._arrive, session, self.start.start_url))
        await self._pool.desk.require_login(task, self.start.start_url, session)
        if bool(view.png) and await asyncio.to_thread(is_blank, view.png):
            raise BoundaryError(FailureKind.NAVIGATION_FAILED, f"{self.start.start_url} stays blank")
        return task.instruction, view

    async def open_to_agent(self, task: Task, seed: int) -> AgentAccess:
        """Open the start page as `reset` does, with its failures; then start an egress proxy with the same rules."""
        self.har = None  # the agent's browser writes none
        # The agent would take an error page for the site, and its answer would be scored.
        instruction, _ = await self.reset(task, seed)
        if "http_credentials" in self.session.options.context_arguments:
            detail = f"{self.start.start_url} needs browser.http_credentials, which no agent gets"
            raise BoundaryError(FailureKind.AUTHENTICATION_REQUIRED, detail)
        await self._close_session()
        proxy = EgressProxy(self._pool.gate.rules, self._pool.gate.unchecked)
        self._agent_proxy = await self._held.enter_async_context(proxy)
        start_url, state = self.start.start_url, self.start.to_storage_state()
        return AgentAccess(instruction, start_url, proxy.address, state, proxy.require_reached)

    async def step(self, action: AnyAction) -> EnvironmentStep:
        """Execute one action and observe its result."""
        session, dialogs = self.session, self.session.dialogs
        dialogs.begin_step()
        if dialogs.open is not None:
            async with session.guard("answering a dialog"):
                error = await tell_exception(dialogs.answer(action))
        else:
            (await session.traffic()).mark()
            performing = perform_action(session, action, self._pool.gate.rules.refuse_url)
            error = await dialogs.until_raised(performing)
        late, view = await self._observe(session, partial(self._settler.settle, session))
        # The policy would take an error page for a fault of its own, and its answer would be judged.
        if (outage := self._pool.gate.find_outage(view.url)) and (
            view.url.startswith("chrome-error:") or (await session.traffic()).status == HTTPStatus.BAD_GATEWAY
        ):
            raise BoundaryError(FailureKind.NETWORK_UNAVAILABLE, f"the page can't be loaded: {outage}")
        # A page that stays, as one behind a websocket, shows nothing of it, and the policy would be scored on it.
        if down := self._pool.gate.find_silent(self._site_url):
            raise BoundaryError(FailureKind.ENVIRONMENT_UNAVAILABLE, down)
        if dialogs.stayed:
            error = _STAYED
        if error is None and view.png and isinstance(action, Action) and action.name is ActionName.ZOOM:
            view, error = await zoom_into(view, action, (session.options.width, session.options.height))
        self._refused = error or ""
        return EnvironmentStep(view=view, action_error=error or find_refusal(self._pool.gate, view.url) or late)

    async def expert_action(self) -> AnyAction:
        """Return the next action of the site's expert in the pool's interaction mode."""
        if self._expert is None:
            return await super().expert_action()
        session, seen = self.session, list[ElementSnapshot]()
        if session.dialogs.open is None:  # a page with one runs no scripts
            seen = await list_elements(session)
        action = await self._expert.act(session, [sighting.element for sighting in seen], self._refused)
        if self._pool.mode is InteractionMode.SET_OF_MARKS or not isinstance(action, Action):
            return action
        return point_at_elements(action, seen, (session.options.width, session.options.height))

    def find_outage(self) -> str:
        """Return why this machine's network seems to be down, if it keeps the current page from loading."""
        url, proxy = self._session.url if self._session else "", self._agent_proxy or self._pool.gate
        return proxy.find_outage(*filter(None, (self.start.start_url, url)))

    async def close(self) -> None:
        """Close the browser context, then release the sites for the next episode."""
        resources, self._held = self._held, AsyncExitStack()
        self._titles, self._agent_proxy = {}, None
        async with resources:
            await self._close_session()

    async def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _prepare(self, task: Task, seed: int) -> EpisodeStart:
        """Start the episode, then call the set-up function of its site. Either may start it on a host of its own."""
        start, seconds = await self._start_episode(task, seed), self._pool.settings.agent.reward_timeout
        prepared = await set_up_site(task, self.episode, seed, start, seconds, self._held)
        if task.site:
            hosts = (urlsplit(one.start_url).hostname for one in (start, prepared))
            self._pool.gate.rules = self._pool.gate.rules.with_names(filter(None, hosts))
        return prepared

    async def _start_episode(self, task: Task, seed: int) -> EpisodeStart:
        """Reserve the task's sites and prepare what the episode starts with, before there is a browser context."""
        return await self._held.enter_async_context(self._pool.desk.start_episode(task, self.episode, seed))

    async def _options(self, task: Task, seed: int) -> SessionOptions:
        """Prepare the episode's other resources; return the options of its browser context."""
        options = self._pool.options
        if state := self.start.storage_state:
            options = replace(options, context_arguments=options.context_arguments | {"storage_state": state})
        if folder := task.extra.get(UPLOADS):  # checked by `require_files`
            options = replace(options, upload_folder=Path(folder))
        return options.authenticate(self.start.start_url, self._pool.credentials)

    async def _arrive(self, session: BrowserSession, url: str) -> None:
        await arrive(session, url, self._pool.gate, self._settler)

    async def _observe(
        self, session: BrowserSession, wait: Callable[[], Awaitable[str | None]]
    ) -> tuple[str | None, RawObservation]:
        """Wait for pending changes, then observe. Returns the message of the wait, and the observation."""

        async def look() -> tuple[str | None, RawObservation]:
            return await wait(), await self._view(session)

        dialogs, seen = session.dialogs, None
        if dialogs.open is None:
            seen = await (dialogs.until_raised(look()) if dialogs.keep else look())
        # a page with an open dialog can't run scripts or be captured
        return seen or (None, self._view_dialog(session))

    def _view_dialog(self, session: BrowserSession) -> RawObservation:
        title, tabs = self._titles.get(session.page, ""), list_tabs(session, self._titles)
        notices = (*self._notices(session), session.dialogs.describe())
        return RawObservation(session.url, title, notices=notices, tabs=tabs)

    async def _view(self, session: BrowserSession) -> RawObservation:
        pool = self._pool
        if pool.screenshots:
            # After an unstable observation the next one waits less.
            read, seconds = partial(self._read, session), pool.max_idle_wait
            view, self._is_stable = await take_snapshot(read, session.screenshot, seconds, patient=self._is_stable)
        else:
            view = await self._read(session)
        if pool.mode is InteractionMode.SET_OF_MARKS and not pool.as_text:
            view = replace(view, png=await asyncio.to_thread(draw_marks, view.png, view.elements))
        state = PageState()
        if not pool.as_text:
            with reading_page():
                state = await measure_extent(session)
            view = replace(view, tree=when(pool.has_tree, f"{format_state(state)}\n{view.tree}"))
        self._titles[session.page] = view.title
        notices, tabs = (*self._notices(session), *view.notices), list_tabs(session, self._titles)
        return replace(
            view, notices=notices, tabs=tabs, state=self._complete_state(session, await session.traffic(), state)
        )

    def _complete_state(self, session: BrowserSession, traffic: PageActivity, state: PageState) -> PageState:
        """Return the state of a page with what the browser knows of it."""
        facts: dict[str, object] = {"pending": traffic.pending, "status": traffic.status or None}
        if traffic.pending or traffic.navigating:
            facts["loading"] = "timed_out"
        elif not self._is_stable:
            facts["loading"] = "moving"
        facts["console_errors"] = session.pages.console_errors - self._errors
        self._errors = session.pages.console_errors
        return state.model_copy(update=facts)

    async def _read(self, session: BrowserSession) -> RawObservation:
        """Return the observation without its screenshot."""
        if self._pool.as_text:
            return await read_page(session, released=self._pool.released)
        limit = when(self._pool.mode is InteractionMode.SET_OF_MARKS, MAX_ELEMENTS)
        with reading_page():
            shown = await look_at(session, limit)
            elements = tuple(seen.element for seen in parse_elements(shown["listed"]))
            notices = when(shown["unlisted"], (f"{shown['unlisted']} more elements are in sight, but not marked",))
            nodes = tuple(str(one["node"]) for one in shown["listed"])
            tree = await read_tree(session, elements) if self._pool.has_tree else ""
            view = RawObservation(shown["url"], shown["title"], elements=elements, nodes=nodes, notices=notices)
            return replace(view, tree=tree)

    def _notices(self, session: BrowserSession) -> tuple[str, ...]:
        """Return the notices since the last observation: dialogs and downloads."""
        pages, answered = session.pages, session.dialogs.answered
        dialogs, downloads = answered[self._noticed[0] :], pages.downloads[self._noticed[1] :]
        self._noticed = len(answered), len(pages.downloads)
        requests, pages.file_requests = pages.file_requests, 0
        return (
            *(f"The page opened a dialog, which was accepted: {text}" for text in dialogs),
            *when(requests, (FILE_REQUEST,)),
            *when(session.silent, (SILENT_FRAME,)),
            *(f"The page offered the file {name}, which was not downloaded" for name in downloads),
        )

    @property
    def session(self) -> BrowserSession:
        """The running episode's browser context."""
        if self._session is None:
            raise RuntimeError("the environment was not reset")
        return self._session


class WebPool(WebResources):
    """Factory of open-web environments."""

    def new(self) -> WebEnvironment:
        """Return a fresh environment; it takes its own browser context on `reset`."""
        return WebEnvironment(self)
