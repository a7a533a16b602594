"""The fixture sites as an environment: small local web sites in place of the open web, with scores and an expert."""

from __future__ import annotations

from webgym_cli.config.model import Settings
from webgym_cli.environments.base import RawObservation
from webgym_cli.environments.browser.actions import normalise_point
from webgym_cli.environments.browser.observe import ElementSnapshot, list_elements
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.environments.fixture_sites.experts import SiteExpert, make_site_expert
from webgym_cli.environments.fixture_sites.faults import FaultConfig
from webgym_cli.environments.fixture_sites.server import EPISODE_COOKIE, HOSTS, SiteServer
from webgym_cli.environments.web.environment import WebEnvironment
from webgym_cli.environments.web.pool import WebPool
from webgym_cli.errors import BoundaryError
from webgym_cli.records.action import InteractionMode
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Score
from webgym_cli.records.webrl import AnyAction, WebRLAction

_TEXT = "() => document.body ? document.body.innerText.slice(0, 200000) : ''"


class SitesPool(WebPool):
    """Serves the sites in this process and makes environments on them; all else is as on the open web."""

    def __init__(self, settings: Settings, mode: InteractionMode, faults: FaultConfig | None = None) -> None:
        super().__init__(settings, mode)
        self.server = SiteServer(faults=faults)

    async def __aenter__(self) -> SitesPool:
        """Serve the sites, open the gate to them, start the browser."""
        await self.server.__aenter__()
        host, port = self.server.address.rsplit(":", 1)
        self.gate.rules = self.gate.rules.with_places(dict.fromkeys(HOSTS, (host, int(port))))
        try:
            await super().__aenter__()
        except BaseException:
            await self.server.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop the browser, close the gate, stop the server."""
        try:
            await super().__aexit__(*exc)
        finally:
            await self.server.__aexit__(None, None, None)

    def new(self) -> SitesEnvironment:
        """Return a fresh environment; its episode has its own state on the server."""
        return SitesEnvironment(self)


class SitesEnvironment(WebEnvironment):
    """One episode on the fixture sites. The server says whether the task was solved."""

    def __init__(self, pool: SitesPool) -> None:
        super().__init__(pool)
        self._sites = pool.server
        self._mode = pool.mode
        self._token = ""
        self._expert: SiteExpert | None = None

    async def reset(self, task: Task, seed: int) -> tuple[str, RawObservation]:
        """Start an episode with fresh state on the server and open its start page."""
        _, view = await super().reset(task, seed)
        instruction = self._sites.instruction(self._token)
        self._expert = make_site_expert(task.id, instruction)
        return instruction, view

    def resolve_task(self, task: Task) -> Task:
        """Return the task with the facts and the answer of this episode, for a judge."""
        rubric, answer = self._sites.rubric(self._token), self._sites.reference_answer(self._token)
        return task.model_copy(update={"rubric": rubric, "reference_answer": answer})

    async def answer(self, text: str) -> Score | None:
        """Score an answered episode by the server's state and the answer."""
        value, reason = self._sites.score(self._token, text)
        return Score(source="environment", value=value, detail=reason)

    async def expert_action(self) -> AnyAction:
        """Return the expert's next action in the pool's interaction mode."""
        session = self.session
        if self._expert is None:
            raise RuntimeError("the environment was not reset")
        seen = await list_elements(session)
        text = await session.evaluate(_TEXT)
        try:
            action = self._expert.next(session.url, [sighting.element for sighting in seen], text)
        except LookupError as error:
            raise BoundaryError(FailureKind.ENVIRONMENT_ERROR, f"the expert is lost: {error}") from error
        return action if self._mode is InteractionMode.SET_OF_MARKS else self._to_point(action, seen)

    async def close(self) -> None:
        """Close the browser context and forget the episode's state."""
        await super().close()
        token, self._token = self._token, ""
        if token:
            self._sites.end_episode(token)

    async def _enter(self, session: BrowserSession, task: Task, seed: int) -> None:
        self._token = self._sites.start_episode(task, seed)
        await session.set_cookies(EPISODE_COOKIE, self._token, HOSTS)

    def _to_point(self, action: AnyAction, seen: list[ElementSnapshot]) -> AnyAction:
        """Return an action on a marked element as one on the point where it can be clicked."""
        if isinstance(action, WebRLAction) or action.element_id is None:
            return action
        options = self.session.options
        point = normalise_point(seen[action.element_id].point, (options.width, options.height))
        return action.model_copy(update={"element_id": None, "coordinate": point})
