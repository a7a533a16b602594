"""Policy servers on the other nodes of a cluster, each for the worker of its node; they only speak vLLM's HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from functools import partial

import psutil
import pytest

from tests.rollout.in_process import InProcessCluster
from tests.serve.fakes import fake_python, look, weights
from webgym_cli.agent.gate import ServedPolicy
from webgym_cli.rollout.ray import driver
from webgym_cli.rollout.ray.driver import RayRunner
from webgym_cli.rollout.resources import PolicyEndpoint
from webgym_cli.serve import execute
from webgym_cli.serve.node_servers import serve_on_node


class Served:
    """A run whose policy is served on the nodes of a cluster."""

    def __init__(self, world, folder):
        self.world, self.folder, self.events = world, folder, []
        self.python, self.model = fake_python(folder), weights(folder / "model", b"one")

    @asynccontextmanager
    async def open(self, cluster, *overrides):
        """Yield the base URLs of each node's own servers."""
        given = ["venvs.device=cuda", f"venvs.serve={self.python}", "serve.stop_grace=2", *overrides]
        settings = self.world.load(*given)
        endpoint = PolicyEndpoint(base_urls=("http://127.0.0.1:9/v1",), served=ServedPolicy(name="model"))
        serve = partial(serve_on_node, settings, self.model, self.folder / "logs")
        opening = self.world.run, settings, cluster, endpoint, "", self.events.append
        self.world.run.root.mkdir(exist_ok=True)
        async with RayRunner(*opening, serve):
            yield {node: worker._own_urls for node, worker in cluster.workers.items() if worker._own_urls}

    def told(self, name):
        return [event for event in self.events if event["event"] == name]


@pytest.fixture
def served(world, tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(driver, "POLL_SECONDS", 0.05)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    return Served(world, tmp_path)


async def test_each_other_node_with_gpus_serves_for_itself_until_the_end(served):
    async with served.open(InProcessCluster(3, gpus=2)) as urls:
        assert sorted(urls) == ["n1", "n2"]  # n0 is this one
        urls = [url for own in urls.values() for url in own]
        seen = [await look(url) for url in urls]
        assert len(urls) == 4 and all(url.startswith("http://127.0.0.1:") for url in urls)
        assert sorted(one["gpus"] for one in seen) == ["0", "0", "1", "1"]
    assert not any(psutil.pid_exists(one["pid"]) for one in seen)
    assert [event["serves"] for event in served.told("node_server")] == [True, True]


async def test_nodes_without_gpus_enough_serve_nothing(served):
    async with served.open(InProcessCluster(3)) as urls:
        assert urls == {}
    async with served.open(InProcessCluster(2, gpus=1), "serve.tensor_parallel_size=2") as urls:
        assert urls == {}
    async with served.open(cluster := InProcessCluster(2, gpus=2), "serve.tensor_parallel_size=2") as urls:
        (url,) = urls["n1"]
        assert (await look(url))["argv"].count("--tensor-parallel-size") == 1
        assert cluster.reserved == {"n0": 0, "n1": 2}


async def test_a_node_whose_servers_are_gone_is_lost(served):
    cluster = InProcessCluster(2, gpus=1)
    async with served.open(cluster, "serve.replicas=1", "serve.restarts=0") as urls:
        os.kill((await look(urls["n1"][0]))["pid"], signal.SIGKILL)
        async with asyncio.timeout(60):
            while not (lost := served.told("rank_lost")):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    assert "its policy servers are gone: vLLM ended while it was serving" in lost[0]["message"]
    assert cluster.killed[0] == "n1"
    await cluster.bury()


async def test_a_node_whose_servers_do_not_start_asks_those_of_this_one(served):
    served.python.write_text("#!/bin/sh\nexit 3\n")
    async with served.open(InProcessCluster(2, gpus=1)) as urls:
        assert urls == {}
    ((event),) = served.told("node_server")
    assert event["serves"] is False and "vLLM" in event["message"]
    assert len(served.told("rank")) == 2


async def test_it_is_left_out_where_it_can_not_reach_them(served):
    served.python.write_text("#!/bin/sh\nexit 3\n")
    cluster = InProcessCluster(2, gpus=1)
    cluster.here = "10.0.0.9"
    async with served.open(InProcessCluster(1)) as urls:
        assert urls == {}
    with pytest.raises(Exception, match=r"it has no policy server.*\(serve.host\); no rank is left"):
        async with served.open(cluster):
            raise AssertionError("it opened")
