"""WebArena environment: pages as WebRL's text, its actions, several tabs, and evaluations that inspect pages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.environments.base import AgentAccess, Environment, EnvironmentStep, RawObservation
from webgym_cli.environments.browser.actions import new_tab, show_tab
from webgym_cli.environments.browser.options import SessionOptions
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.environments.episode_start import EpisodeStart
from webgym_cli.environments.sites.accounts import is_fixture, task_sites
from webgym_cli.environments.tools.answer_judge import AnswerJudge
from webgym_cli.environments.web.environment import WebEnvironment, WebPool
from webgym_cli.environments.web.settling import open_address
from webgym_cli.environments.webarena.evaluation import grade
from webgym_cli.environments.webarena.evaluation_browser import EvaluationBrowser
from webgym_cli.environments.webarena.tasks import evaluation_of
from webgym_cli.environments.webarena.text_match import FuzzyJudgeFn, FuzzyKind
from webgym_cli.errors import BoundaryError
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Element, Score
from webgym_cli.records.webrl import AnyAction, WebRLAction, WebRLActionName
from webgym_cli.util.registry import lazy

# Sites that this process serves in place of WebArena's, with an expert, imported for tasks of theirs.
_FIXTURE = "webgym_cli.environments.fixture_sites"
_make_expert = lazy(f"{_FIXTURE}.webarena_tasks:make_expert")
_make_server = lazy(f"{_FIXTURE}.environment:SiteServer")
_LISTS = ("combobox", "listbox")
# What the judge is asked about a `fuzzy_match`.
_QUESTIONS = {
    "same": (
        "Is `answer`, by an agent that operated a website for a user, a right answer to `task`? It is if it tells "
        "everything that `reference` tells, in whatever words, units or order, and nothing that contradicts it. Where "
        "a part of the reference is missing or differs, it is not."
    ),
    "unachievable": (
        "`task`, which a user gave an agent that operated a website, can't be done; `reference` says why. Is `answer` "
        "right? It is if it says that the task can't be done and the reason that it gives or implies agrees with the "
        "reference. An answer that claims to have done the task, or gives another reason, is not."
    ),
}


class WebArenaPool(WebPool):
    """Makes environments on WebArena's sites, and on the fixture sites, which are served when a task needs them."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, InteractionMode.SET_OF_MARKS, as_text=True)
        self._answer_judge = AnswerJudge(settings.judge)
        self.judge: FuzzyJudgeFn | None = self._ask_judge if settings.judge.base_url else None
        self._fixture: Any = None
        self._serving = asyncio.Lock()
        self._served = AsyncExitStack()

    async def _start(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._served)
        stack.push_async_callback(self._answer_judge.close)
        await super()._start(stack)

    async def _ask_judge(self, kind: FuzzyKind, intent: str, reference: str, answer: str) -> bool:
        """Return whether an answer is right. Raises `BoundaryError` (judge_failed) without a verdict."""
        return (await self._answer_judge(_QUESTIONS[kind], task=intent, reference=reference, answer=answer)).yes

    async def fixture(self) -> Any:
        """Return the fixture sites, served and reachable through the egress proxy."""
        async with self._serving:
            if self._fixture is None:
                server = await self._served.enter_async_context(_make_server())
                self.gate.rules = self.gate.rules.with_places(server.places)
                self._fixture = server
            return self._fixture

    def new(self) -> WebArenaEnvironment:
        """Return a fresh environment."""
        return WebArenaEnvironment(self)


class WebArenaEnvironment(WebEnvironment):
    """One episode. Its score is the task's own evaluation; generated tasks have none and need a reward model."""

    def __init__(self, pool: WebArenaPool) -> None:
        super().__init__(pool)
        self._arena = pool
        self._task = Task(id="none", environment="webarena")
        self._seen: tuple[Element, ...] = ()

    async def open_to_agent(self, task: Task, seed: int) -> AgentAccess:
        """Refuse: tasks are scored on the pages of our own browser context."""
        return await Environment.open_to_agent(self, task, seed)

    async def answer(self, text: str) -> Score | None:
        """Score an answered episode by the task's evaluation; None for a generated task."""
        return await self._score(text)

    async def out_of_steps(self) -> Score | None:
        """Score the current state: pages may be right without an answer."""
        return await self._score(None)

    async def step(self, action: AnyAction) -> EnvironmentStep:
        """Execute one action. Raises `ENVIRONMENT_UNAVAILABLE` if it leads to a site of the task that is down."""
        result = await super().step(action)
        await self._require_answer()
        return result

    async def expert_action(self) -> AnyAction:
        """Return the expert's next action. Raises `UsageError` for tasks outside the fixture sites."""
        if self._expert is None:
            self._expert = _make_expert(self._task)
        return _to_webrl_action(await self._expert.act(self.session, self._seen), self._seen)

    async def _start_episode(self, task: Task, seed: int) -> EpisodeStart:
        """Reserve the sites, or start an episode on the fixture sites."""
        self._task = task
        if not is_fixture(task):
            return await super()._start_episode(task, seed)
        server = await self._arena.fixture()
        token = server.open_world()
        self._held.callback(server.episodes.pop, token, None)
        start: EpisodeStart = server.describe_start(token, task.start_url)
        return start

    async def _options(self, task: Task, seed: int) -> SessionOptions:
        options = await super()._options(task, seed)
        if not (place := task.extra.get("geolocation")):
            return options
        location = {"geolocation": place, "permissions": ["geolocation"]}
        return replace(options, context_arguments=options.context_arguments | location)

    async def _arrive(self, session: BrowserSession, url: str) -> None:
        """Open each start page in a tab of its own and show the first."""
        starts = self._task.extra.get("start_urls") or [url]
        first, *others = (self._arena.desk.address(str(start)) for start in starts)
        try:
            await super()._arrive(session, first)
            for other in others:
                await new_tab(session)
                await super()._arrive(session, other)
        except BoundaryError as error:
            if error.kind is FailureKind.NAVIGATION_FAILED:  # of a site of the user's, which will be up again
                error.kind = FailureKind.ENVIRONMENT_UNAVAILABLE
            raise
        if others:
            await show_tab(session, 0)

    async def _view(self, session: BrowserSession) -> RawObservation:
        view = await super()._view(session)
        self._seen = view.elements
        return view

    async def _score(self, answer: str | None) -> Score | None:
        session, task = self.session, self._task
        pages = EvaluationBrowser(session, lambda url: self._look_up(session, url), self._arena.settings)
        judge = self._arena.judge
        parts = await grade(evaluation_of(task), intent=task.instruction, answer=answer, pages=pages, judge=judge)
        if parts is None:
            return None
        detail = ", ".join(f"{kind} {part:g}" for kind, part in parts.items())
        return Score(source="environment", value=float(all(parts.values())), detail=detail)

    async def _look_up(self, session: BrowserSession, url: str) -> None:
        """Open a URL for the evaluation; a missing page shows the site's own error page."""
        try:
            await open_address(session, url, self._pool.gate)
            await self._settler.settle(session)
        finally:
            await self._require_answer()

    async def _require_answer(self) -> None:
        """Raise a failure if the current page is an error page since a site of the task is down."""
        sites, session = self._arena.settings.sites, self.session
        known = (sites[site].url for site in task_sites(self._task) if site in sites)
        down = self._arena.gate.find_silent(*known)
        if down and (
            session.url.startswith("chrome-error:") or (await session.traffic()).status == HTTPStatus.BAD_GATEWAY
        ):
            raise BoundaryError(FailureKind.ENVIRONMENT_UNAVAILABLE, down)


def _to_webrl_action(action: AnyAction, elements: Sequence[Element]) -> AnyAction:
    """Return an expert's action in WebRL's action set. Raises `BoundaryError` if it has no equivalent."""
    if isinstance(action, WebRLAction):
        return action
    if action.name is ActionName.NAVIGATE:
        detail = "the expert is lost: WebRL has no action that opens an address"
        raise BoundaryError(FailureKind.ENVIRONMENT_ERROR, detail)
    if action.name is not ActionName.TYPE or action.element_id is None:
        return action
    text = action.text or ""
    if elements[action.element_id].role in _LISTS:
        return WebRLAction(name=WebRLActionName.SELECT, element_id=action.element_id, text=text)
    if text.endswith("\n"):
        return WebRLAction(name=WebRLActionName.SEARCH, element_id=action.element_id, text=text[:-1])
    return Action(name=ActionName.TYPE, element_id=action.element_id, text=text)
