"""A visitor without a browser: speaks HTTP to the sites and reads their pages."""

import html
import re
from dataclasses import dataclass

import aiohttp

from webgym_cli.environments.fixture_sites.environment import EPISODE_COOKIE, SiteServer
from webgym_cli.environments.fixture_sites.episode import SiteEpisode
from webgym_cli.environments.fixture_sites.tasks import find_task


@dataclass
class Page:
    status: int
    body: str
    location: str | None = None

    @property
    def text(self) -> str:
        """What a reader sees, roughly: without styles, tags and entities."""
        inner = re.sub(r"<(style|script)[\s\S]*?</\1>", " ", self.body)
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", inner)).split())


class Visitor:
    """One episode and its requests, all to the host of its task."""

    def __init__(self, server: SiteServer, task: str, seed: int = 0) -> None:
        self.server = server
        self.site_task = find_task(task)
        self.token = server.start_episode(self.site_task.task, seed)

    @property
    def live(self) -> SiteEpisode:
        return self.server.episodes[self.token]

    @property
    def values(self) -> dict[str, str]:
        return dict(self.live.values)

    @property
    def state(self):
        return self.live.state(self.site_task.host)

    def score(self, answer: str | None = None) -> float:
        return self.live.score(answer)[0]

    async def get(self, path: str, host: str = "") -> Page:
        return await request(self.server, "GET", host or self.site_task.host, path, self.token)

    async def post(self, path: str, **form: str | list[str]) -> Page:
        listed = {name: [values] if isinstance(values, str) else values for name, values in form.items()}
        fields = [(name, value) for name, values in listed.items() for value in values]
        return await request(self.server, "POST", self.site_task.host, path, self.token, fields)

    async def log_in(self) -> None:
        page = await self.post("/login", user=self.values["user"], password=self.values["password"])
        assert page.location == "/folder/inbox"

    def leave(self) -> None:
        self.server.episodes.pop(self.token, None)


async def request(server: SiteServer, method: str, host: str, path: str, token: str | None = None, form=None) -> Page:
    """Send one request, without following it anywhere."""
    headers = {"Host": host} | ({"Cookie": f"{EPISODE_COOKIE}={token}"} if token else {})
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            method, f"http://{server.address}{path}", headers=headers, data=form, allow_redirects=False
        ) as response,
    ):
        return Page(response.status, await response.text(), response.headers.get("Location"))
