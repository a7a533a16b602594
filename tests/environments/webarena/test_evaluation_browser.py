"""What WebArena's helpers tell of a page and of the shop."""

import ssl

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.environments.lab import write_certificate
from webgym_cli.config.load import load
from webgym_cli.environments.webarena.environment import WebArenaPool
from webgym_cli.environments.webarena.evaluation_browser import (
    EvaluationBrowser,
    PageScriptError,
    fetch_newest_review,
)
from webgym_cli.environments.webarena.locators import HelperName
from webgym_cli.errors import BoundaryError
from webgym_cli.records.task import Task

SETTLED = "browser.max_idle_wait=0.5"

REVIEWS = [
    {"id": 7, "nickname": "Ann", "ratings": [{"percent": 80}]},
    {"id": 9, "nickname": "Bo", "ratings": [{"percent": 20}]},
    {"id": 8, "nickname": "Cy", "ratings": []},
]


@pytest.fixture(params=["http", "https"])
async def shop(request, monkeypatch, tmp_path):
    """Serve the shop's programming interface, by https with a certificate that nobody signed; yield its settings."""

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
    tls = {}
    if request.param == "https":
        tls = {"ssl": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)}
        tls["ssl"].load_cert_chain(*write_certificate(tmp_path))
    server = TestServer(app, scheme=request.param)
    await server.start_server(**tls)
    async with server:
        url = str(server.make_url("")).rstrip("/")
        own = [f"sites.shopping.url={url}", f"sites.shopping_admin.url={url}/admin"]
        yield load(["webarena"], [*own, "sites.shopping.ignore_https_errors=true"])


@pytest.mark.parametrize(("sku", "expected"), [("B 1", ("Bo", "20")), ("none", None), ("unknown", None)])
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
@pytest.mark.usefixtures("chromium", "lab")
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
