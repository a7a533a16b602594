import re
import tracemalloc

import aiohttp
import pytest
from aiohttp import web

from tests.environments.fixture_sites.visiting import Visitor, request
from tests.environments.lab import LabServer
from webgym_cli.environments.fixture_hosts import SITE_HOSTS
from webgym_cli.environments.fixture_sites.environment import EPISODE_COOKIE, SiteServer
from webgym_cli.environments.fixture_sites.tasks import find_task, load_site_tasks
from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.util.local_server import LocalServer

PATHS = {
    "shop-tidy-cart": "/ /category/desk?sort=-price /search?q=&page=2 /deals /cart /orders /checkout",
    "mail-reply": "/login /folder/inbox /search?q=meeting /message/3 /compose?reply=3 /contacts",
}


async def pages(visitor: Visitor) -> list[str]:
    """Return the site's pages, each once, the links of the first ones followed."""
    if visitor.site_task.host == "mail.test":
        await visitor.log_in()
    responses = [await visitor.get(path) for path in PATHS[visitor.site_task.id].split()]
    assert {page.status for page in responses} == {200}
    links = {link for page in responses for link in re.findall(r'href="(/[^"]+)"', page.body)}
    more = [await visitor.get(link.replace("&amp;", "&")) for link in sorted(links)]
    assert {page.status for page in more} <= {200, 302, 303}
    return [page.body for page in (*responses, *more)]


async def test_a_site_is_closed_without_an_episode_and_after_it(sites):
    token = sites.start_episode(find_task("shop-cart").task, 1)
    assert (await request(sites, "GET", "shop.test", "/", token)).status == 200
    del sites.episodes[token]
    for host in SITE_HOSTS:
        for key in (None, "guessed", token):
            page = await request(sites, "GET", host, "/", key)
            assert page.status == 403 and "only open during an episode" in page.text


async def test_hosts_are_told_apart_by_name_and_a_port_behind_it_does_not_matter(visit, sites):
    visitor = visit("shop-cart")
    pages = {"shop.test": "/", "mail.test": "/login"}
    titles = [(await visitor.get(path, host)).text.split()[0] for host, path in pages.items()]
    assert len(set(titles)) == len(pages)
    assert await visitor.get("/", "SHOP.test:8080") == await visitor.get("/")
    assert (await visitor.get("/", "example.com")).status == 404


@pytest.mark.parametrize("task", PATHS)
async def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(visit, task):
    one, same, other = [await pages(visit(task, seed)) for seed in (5, 5, 6)]
    assert one == same
    assert one != other
    assert visit(task, 5).token not in "".join(one)


@pytest.mark.parametrize("task", PATHS)
async def test_pages_are_light_and_ask_nobody_else(visit, task):
    for body in await pages(visit(task, 7)):
        assert len(body.encode()) < 30_000
        assert not re.search(r'<[^>]*(?:src|href|action)="(?:https?:)?//', body)


async def test_episodes_do_not_see_each_other(visit):
    one, other = visit("shop-cart", 3), visit("shop-cart", 3)
    product = one.values["product"].lower().replace(" ", "-")
    colour = re.search(r"<option>(\w+)</option>", (await one.get(f"/product/{product}")).body)[1]
    added = await one.post("/cart/add", product=product, count=one.values["count"], colour=colour)
    assert added.location == "/cart"
    assert one.score() == 1.0
    assert other.score() == 0.0
    assert "Your cart is empty" in (await other.get("/cart")).text
    again = visit("shop-cart", 3)
    assert again.live.instruction == one.live.instruction
    assert again.score() == 0.0


def test_thousands_of_episodes_cost_little():
    server = SiteServer()
    tasks = [task.task for task in load_site_tasks().values()]
    tracemalloc.start()
    try:
        for seed in range(5000):
            server.start_episode(tasks[seed % len(tasks)], seed)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(server.episodes) == 5000
    assert used < 5000 * 2048


async def test_only_tasks_of_the_sites_are_started_and_a_port_that_is_taken_is_a_usage_error(sites):
    server = SiteServer()
    for task, words in (("shop-cart", "environment web"), ("shop-nothing", r"no task 'shop-nothing'; ")):
        environment = "web" if task == "shop-cart" else "sites"
        with pytest.raises(UsageError, match=words):
            server.start_episode(Task(id=task, environment=environment), 0)
    port = int(sites.address.partition(":")[2])
    with pytest.raises(UsageError, match=f"port {port} of 127.0.0.1"):
        await LocalServer(web.Application(), port).__aenter__()


async def test_leaving_ends_what_hangs():
    async with LabServer() as server, aiohttp.ClientSession() as session:
        url = f"http://{server.address}/endless.gif"
        async with session.get(url, headers={"Host": "lab.test"}) as response:
            assert await response.content.readany() == b"GIF89a"
            await server.__aexit__()
            assert await response.read() == b""


async def test_odd_requests_get_a_page_and_change_nothing(sites, visit):
    visitor = visit("shop-tidy-cart")
    assert (await visitor.get("/cart/add")).status == 405
    assert (await visitor.post("/")).status == 405
    for method in ("PUT", "DELETE", "PATCH"):
        assert (await request(sites, method, "shop.test", "/", visitor.token)).status == 405
    assert (await visitor.get("/nowhere")).status == 404
    assert (await visitor.get("/search?q=%00%ff&page=-1&sort=odd")).status == 200
    assert (await visitor.post("/cart/add", product="nothing")).status == 404
    headers = {"Host": "shop.test", "Cookie": f"{EPISODE_COOKIE}={visitor.token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        for kind, status in (("application/x-www-form-urlencoded; charset=nonsense", 400), ("text/plain", 404)):
            url = f"http://{sites.address}/cart/update"
            async with session.post(url, data=b"product=\xff", headers={"Content-Type": kind}) as response:
                assert response.status == status
        async with session.post(url, data={"product": "x" * 300_000}) as response:
            assert response.status == 413
    assert len(visitor.state.cart) == 3
