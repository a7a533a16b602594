"""The open web in small: a pool whose names lead to local servers, and episodes that are driven by hand."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from tests.environments.lab import LabServer
from tests.environments.odd_server import OddServer
from webgym_cli.config.load import load
from webgym_cli.environments.base import RawObservation
from webgym_cli.environments.web.environment import WebEnvironment, WebPool
from webgym_cli.errors import BoundaryError
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.task import Task

HASTY = ("browser.max_idle_wait=0.5", "browser.navigation_timeout=3", "browser.action_timeout=3")
"""Short limits: what is waited for here is local."""


@dataclass
class Visit:
    """An episode in progress, and what was last seen of it."""

    environment: WebEnvironment
    odd: OddServer
    """Serves the pages of `show`."""
    view: RawObservation | None = None
    error: str | None = None

    async def open(self, url: str) -> RawObservation:
        _, self.view = await self.environment.reset(Task(id="t", environment="web", start_url=url), 0)
        return self.view

    async def show(self, path: str, html: str) -> RawObservation:
        """Open a page of `http://odd.test` that is made for it."""
        self.odd.pages[path] = html
        return await self.open(f"http://odd.test{path}")

    async def refused(self, url: str) -> BoundaryError:
        """Return why an episode can't start there."""
        with pytest.raises(BoundaryError) as failure:
            await self.open(url)
        return failure.value

    async def act(self, name: ActionName, **arguments: object) -> RawObservation:
        result = await self.environment.step(Action(name=name, **arguments))
        assert result.view is not None and not result.done and result.score is None
        self.view, self.error = result.view, result.action_error
        return self.view

    async def click(self, name: str) -> RawObservation:
        return await self.act(ActionName.CLICK, element_id=self.find(name))

    async def navigate(self, url: str) -> RawObservation:
        return await self.act(ActionName.NAVIGATE, url=url)

    async def wait(self, seconds: float = 0.0) -> RawObservation:
        return await self.act(ActionName.WAIT, seconds=seconds)

    async def back(self) -> RawObservation:
        return await self.act(ActionName.GO_BACK)

    def find(self, name: str) -> int:
        return next(element.id for element in self.view.elements if element.name == name)

    @property
    def names(self) -> list[str]:
        return [element.name for element in self.view.elements]

    @property
    def session(self):
        return self.environment._session

    async def text(self) -> str:
        return await self.session.evaluate("() => document.body.innerText")

    async def ask(self, function: str, argument: object = None):
        return await self.session.page.evaluate(function, argument)


@dataclass
class SmallWeb:
    """A started pool with its servers."""

    pool: WebPool
    sites: LabServer
    odd: OddServer
    """`http://odd.test`, `http://odd.example` and `https://` of the same names, though it speaks no TLS."""
    private: OddServer
    """A server on a private address that nothing may reach."""
    visits: list[Visit] = field(default_factory=list)

    def visit(self) -> Visit:
        self.visits.append(Visit(self.pool.new(), self.odd))
        return self.visits[-1]


@asynccontextmanager
async def small_web(*overrides: str, mode: InteractionMode = InteractionMode.SET_OF_MARKS) -> AsyncIterator[SmallWeb]:
    settings = load(overrides=[*HASTY, *overrides])
    async with LabServer() as sites, OddServer() as odd, OddServer() as private:
        pool = WebPool(settings, mode)
        places = sites.places | dict.fromkeys(("odd.test", "odd.example"), odd.place)
        pool.gate.rules = pool.gate.rules.with_places(places)
        async with pool:
            yield SmallWeb(pool, sites, odd, private)
