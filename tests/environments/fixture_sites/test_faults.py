from __future__ import annotations

import asyncio
import math
import random
import re
import statistics

import pytest

from tests.environments.fixture_sites.visiting import Visitor
from webgym_cli.environments.fixture_sites.faults import FaultConfig, LatencyModel
from webgym_cli.environments.fixture_sites.padding import add_padding, padding_html
from webgym_cli.environments.fixture_sites.server import ENDLESS, SiteServer


def fates(faults: FaultConfig, count: int = 4000):
    return [faults.draw_fault("shop-cart/0", number) for number in range(count)]


def test_without_knobs_nothing_happens():
    assert all(fault.delay == 0 and not fault.error and not fault.blank for fault in fates(FaultConfig()))


def test_a_constant_latency_is_the_same_every_time():
    assert {fault.delay for fault in fates(FaultConfig(latency=LatencyModel(0.25)))} == {0.25}


def test_a_lognormal_latency_has_its_median_and_its_spread():
    delays = [fault.delay for fault in fates(FaultConfig(latency=LatencyModel(2.0, 0.5)))]
    logs = [math.log(delay) for delay in delays]
    assert math.exp(statistics.mean(logs)) == pytest.approx(2.0, rel=0.05)
    assert statistics.stdev(logs) == pytest.approx(0.5, rel=0.05)
    # Over one half take longer than the median, 15.9 % longer than one sigma above.
    assert sum(delay > 2.0 * math.exp(0.5) for delay in delays) / len(delays) == pytest.approx(0.159, abs=0.02)


def test_the_shares_are_kept_and_independent():
    told = fates(FaultConfig(error_rate=0.3, blank_rate=0.1, slow_rate=0.2, slow_seconds=7))
    count = len(told)
    assert sum(fault.error for fault in told) / count == pytest.approx(0.3, abs=0.03)
    assert sum(fault.blank for fault in told) / count == pytest.approx(0.1, abs=0.02)
    assert sum(fault.delay == 7 for fault in told) / count == pytest.approx(0.2, abs=0.03)
    assert sum(fault.error and fault.blank for fault in told) / count == pytest.approx(0.03, abs=0.01)


def test_luck_depends_on_seeds_and_number_alone():
    faults = FaultConfig(latency=LatencyModel(1, 1), error_rate=0.5)
    assert fates(faults) == fates(faults)
    assert faults.draw_fault("shop-cart/0", 3) != faults.draw_fault("shop-cart/1", 3)
    assert faults.draw_fault("shop-cart/0", 3) != FaultConfig(
        latency=LatencyModel(1, 1), error_rate=0.5, seed=1
    ).draw_fault("shop-cart/0", 3)
    assert LatencyModel(1, 1).draw(random.Random(4)) == LatencyModel(1, 1).draw(random.Random(4))


@pytest.mark.parametrize(
    "wrong",
    [{"error_rate": 1.5}, {"blank_rate": -0.1}, {"slow_seconds": -1}, {"heavy_nodes": -1}, {"blocked_after": -2}],
)
def test_impossible_knobs_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        FaultConfig(**wrong)
    with pytest.raises(ValueError, match="negative"):
        LatencyModel(-1)


@pytest.mark.parametrize("nodes", [0, 1, 4, 5, 19, 20, 21, 1000, 1003])
def test_ballast_has_exactly_so_many_elements(nodes):
    assert len(re.findall(r"<[a-z]", padding_html(nodes))) == nodes
    assert padding_html(nodes).count("<") == 2 * nodes


def test_ballast_has_hundreds_of_links_at_ten_thousand_elements():
    assert padding_html(10_000).count("<a ") == 500


def test_a_page_without_burden_stays_as_it_is():
    assert add_padding("<body>x</body>", 0, None) == "<body>x</body>"


async def test_errors_come_before_anything_changes_and_can_be_sent_again():
    async with SiteServer(faults=FaultConfig(error_rate=1.0)) as server:
        visitor = Visitor(server, "mail-write", 2)
        page = await visitor.post("/login", user=visitor.values["user"], password=visitor.values["password"])
        assert page.status == 503
        assert "Something went wrong" in page.text
        assert not visitor.state.logged_in
        assert re.search(r'<form method="post" action="/login">', page.body)
        for name in ("user", "password"):
            assert f'name="{name}" value="{visitor.values[name]}"' in page.body
        asked = await visitor.get("/search?q=a%22b")
        assert 'name="q" value="a&#34;b"' in asked.body


async def test_the_same_episode_meets_the_same_errors():
    async def statuses(server, seed):
        visitor = Visitor(server, "shop-cart", seed)
        return [(await visitor.get("/deals")).status for _ in range(40)]

    async with SiteServer(faults=FaultConfig(error_rate=0.4)) as server:
        one, same, other = [await statuses(server, seed) for seed in (1, 1, 2)]
    assert one == same != other
    assert set(one) == {200, 503}


async def test_a_blocked_host_shuts_its_door_after_some_pages_and_stays_shut():
    faults = FaultConfig(blocked_hosts=("shop.test",), blocked_after=2)
    async with SiteServer(faults=faults) as server:
        visitor = Visitor(server, "shop-cart")
        assert [(await visitor.get("/")).status for _ in range(4)] == [200, 200, 403, 403]
        assert "Verify you are human" in (await visitor.get("/")).text
        assert (await visitor.get("/", "wiki.test")).status == 200
        assert (await Visitor(server, "shop-cart").get("/")).status == 200


async def test_a_host_can_be_blocked_at_once():
    async with SiteServer(faults=FaultConfig(blocked_hosts=("shop.test",))) as server:
        assert (await Visitor(server, "shop-cart").get("/")).status == 403


async def test_heavy_endless_and_blank_pages():
    async with SiteServer(faults=FaultConfig(heavy_nodes=3000, endless=True)) as server:
        heavy = await Visitor(server, "shop-cart").get("/")
        assert len(re.findall(r"<[a-z]", heavy.body)) > 3000
        assert f'src="{ENDLESS}"' in heavy.body
        assert "Things for house and garden" in heavy.text
    async with SiteServer(faults=FaultConfig(blank_rate=1.0)) as server:
        blank = await Visitor(server, "shop-cart").get("/")
        assert (blank.status, blank.body) == (200, "")


class Watched(asyncio.Event):
    """Tells when somebody begins to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.awaited = asyncio.Event()

    async def wait(self):
        self.awaited.set()
        return await super().wait()


async def test_a_slow_page_keeps_its_first_byte_until_the_server_stops():
    async with SiteServer(faults=FaultConfig(slow_rate=1.0, slow_seconds=3600)) as server:
        server.closing = closing = Watched()
        waiting = asyncio.create_task(Visitor(server, "shop-cart").get("/"))
        await closing.awaited.wait()
        assert not waiting.done()
        closing.set()
        assert (await waiting).status == 200
