"""What WebArena's helpers tell of a page and of the shop."""

import json
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from webgym_cli.config.load import load
from webgym_cli.environments.episode_start import EpisodeStart
from webgym_cli.environments.sites.site_scheduler import SiteScheduler
from webgym_cli.environments.webarena.environment import WebArenaPool
from webgym_cli.environments.webarena.evaluation_browser import (
    EvaluationBrowser,
    LatestReview,
    PageScriptError,
    fetch_newest_review,
)
from webgym_cli.environments.webarena.locators import HelperName
from webgym_cli.errors import BoundaryError
from webgym_cli.records.task import Task
from webgym_cli.records.webarena import WebArenaSite

SETTLED = "browser.max_idle_wait=0.5"

REVIEWS = [
    {"id": 7, "nickname": "Ann", "ratings": [{"percent": 80}]},
    {"id": 9, "nickname": "Bo", "ratings": [{"percent": 20}]},
    {"id": 8, "nickname": "Cy", "ratings": []},
]


@pytest.fixture
async def shop(monkeypatch):
    """Serve the shop's programming interface; yield its settings."""

    async def token(request):
        known = await request.json() == {"username": "admin", "password": "sesame"}
        return web.json_response("t0k3n" if known else {"message": "no"}, status=200 if known else 401)

    async def reviews(request):
        if request.headers.get("Authorization") != "Bearer t0k3n":
            return web.json_response({}, status=401)
        response = {"B 1": REVIEWS, "none": [], "odd": [{"id": "x"}]}.get(request.match_info["sku"])
        return web.json_response(response, status=404 if response is None else 200)

    app = web.Application()
    app.router.add_post("/rest/default/V1/integration/admin/token", token)
    app.router.add_get("/rest/default/V1/products/{sku}/reviews", reviews)
    monkeypatch.setenv("WEBARENA_SHOPPING_ADMIN_PASSWORD", "sesame")
    async with TestServer(app) as server:
        url = str(server.make_url("")).rstrip("/")
        yield load(["webarena"], [f"sites.shopping.url={url}", f"sites.shopping_admin.url={url}/admin"])


@pytest.mark.parametrize(("sku", "expected"), [("B 1", LatestReview("Bo", "20")), ("none", None), ("unknown", None)])
async def test_the_newest_review_of_a_product(shop, sku, expected):
    assert await fetch_newest_review(shop, sku) == expected


async def test_a_shop_that_does_not_answer_as_it_should_is_no_score(shop, monkeypatch):
    with pytest.raises(BoundaryError, match="the reviews of odd"):
        await fetch_newest_review(shop, "odd")
    monkeypatch.setenv("WEBARENA_SHOPPING_ADMIN_PASSWORD", "wrong")
    with pytest.raises(BoundaryError, match="401"):
        await fetch_newest_review(shop, "B 1")


MEMBERS = """<table>
<tr><td data-label="Account">Ann Lee @ann</td><td data-label="Max role">Owner</td></tr>
<tr><td data-label="Account">Anna Li @anna</td><td data-label="Max role"> Guest </td></tr></table>"""
ORDERS = """<a href="/sales/order/view/order_id/9/">View</a><a href="/sales/order/view/order_id/8/">View</a>"""


async def put(session, html):
    """Give a page other contents, once its own are there."""
    await session.evaluate(
        f"""async () => {{
            if (document.readyState !== "complete") await new Promise((then) => addEventListener("load", then));
            document.body.innerHTML = `{html}`;
        }}"""
    )


@pytest.mark.browser
@pytest.mark.usefixtures("chromium")
async def test_pages_are_looked_at_without_touching_the_last_one():
    settings = load(["webarena"], [SETTLED, "sites.shopping.url=http://lab.test"])
    opened = []
    async with WebArenaPool(settings) as pool:
        environment = pool.new()
        await environment.reset(Task(id="t", start_url="http://lab.test/injection", environment="webarena"), 0)
        session = environment._session

        async def arrive(url):
            opened.append(url)
            await session.goto("http://lab.test/")
            await put(session, ORDERS)

        pages = EvaluationBrowser(session, arrive, settings)
        assert await pages.address() == "http://lab.test/injection"
        assert "Notes of a visitor" in await pages.html()
        assert await pages.run("() => 1 + 1") == 2
        with pytest.raises(PageScriptError):
            await pages.run("() => document.querySelector('#none').value")
        await put(session, MEMBERS)
        roles = [await pages.ask(HelperName.MEMBER_ROLE, name) for name in ("ann", "anna", "an")]
        assert roles == ["Owner", "Guest", None]
        order = await pages.ask(HelperName.LATEST_ORDER, None)
        assert order == "http://lab.test/sales/order/view/order_id/9/"
        assert opened == ["http://lab.test/sales/order/history/"]
        assert len(session.pages) == 2
        await pages.open("http://lab.test/other")
        assert len(session.pages) == 2
        await environment.close()


@pytest.mark.browser
@pytest.mark.usefixtures("chromium")
async def test_an_episode_starts_logged_in_and_holds_its_sites_until_it_is_closed(tmp_path):
    script = "document.body.append(`${document.cookie} ${localStorage.getItem('theme')}`)"

    async def page(request):
        return web.Response(text=f"<body>Hello <script>{script}</script></body>", content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    held = []

    class Desk(SiteScheduler):
        @asynccontextmanager
        async def reserve(self, sites, logins, values):
            held.extend(sites)
            yield EpisodeStart()
            held.clear()

        def storage_state(self, task):
            return state

    async with TestServer(app) as server, WebArenaPool(load(overrides=[SETTLED])) as pool:
        url = str(server.make_url("")).rstrip("/")
        cookie = {"name": "login", "value": "known", "domain": "127.0.0.1", "path": "/", "expires": -1}
        cookie |= {"httpOnly": False, "secure": False, "sameSite": "Lax"}
        origin = {"origin": url, "localStorage": [{"name": "theme", "value": "dark"}]}
        state = tmp_path / "shopping_state.json"
        state.write_text(json.dumps({"cookies": [cookie], "origins": [origin]}))
        pool.gate.rules = pool.gate.rules.with_names(["127.0.0.1"])
        pool.desk = Desk(pool.settings, lambda: pool.browsers)
        environment = pool.new()
        task = Task(id="t", start_url=url, environment="webarena", extra={"sites": ["shopping"]})
        _, view = await environment.reset(task, 0)
        assert "login=known dark" in view.html
        assert held == [WebArenaSite.SHOPPING]
        await environment.close()
        assert held == []
