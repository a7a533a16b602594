"""Servers on the other nodes of a cluster, each for the ranks of its node; the servers only speak vLLM's HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal

import psutil
import pytest

from tests.rollout.in_process import InProcessCluster
from tests.serve.fakes import fake_python, look, weights
from webgym_cli.config.load import load
from webgym_cli.serve import execute, node_servers
from webgym_cli.serve.node_servers import find_serving_nodes, open_node_servers


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Returns how to open the servers of a cluster, whose events are in `events`."""
    monkeypatch.setattr(execute, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(node_servers, "POLL_SECONDS", 0.05)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    python, model = fake_python(tmp_path), weights(tmp_path / "model", b"one")

    def open_servers(cluster, *overrides):
        given = ["venvs.device=cuda", f"venvs.serve={python}", "serve.stop_grace=2", *overrides]
        settings = load(overrides=given)
        nodes = find_serving_nodes(cluster, settings)
        opening = (settings, model, str(tmp_path / "logs"))
        return open_node_servers(tmp_path, cluster, nodes, opening, open_servers.events.append)

    open_servers.events = []
    return open_servers


async def test_each_other_node_with_gpus_serves_for_itself_until_the_end(opened):
    async with opened(InProcessCluster(3, gpus=2)) as servers:
        assert sorted(servers.base_urls) == ["n1", "n2"]  # n0 is this one
        urls = [url for urls in servers.base_urls.values() for url in urls]
        seen = [await look(url) for url in urls]
        assert len(urls) == 4 and all(url.startswith("http://127.0.0.1:") for url in urls)
        assert sorted(one["gpus"] for one in seen) == ["0", "0", "1", "1"]
    assert not any(psutil.pid_exists(one["pid"]) for one in seen)
    assert [event["serves"] for event in opened.events] == [True, True]


async def test_nodes_without_gpus_enough_serve_nothing(opened):
    async with opened(InProcessCluster(3)) as servers:
        assert servers.base_urls == {}
    async with opened(InProcessCluster(2, gpus=1), "serve.tensor_parallel_size=2") as servers:
        assert servers.base_urls == {}
    async with opened(InProcessCluster(2, gpus=2), "serve.tensor_parallel_size=2") as servers:
        (url,) = servers.base_urls["n1"]
        assert (await look(url))["argv"].count("--tensor-parallel-size") == 1


async def test_a_node_whose_servers_are_gone_is_told_of(opened):
    lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def on_lost(node, reason):
        lost.set_result(f"{node}: {reason}")

    async with opened(InProcessCluster(2, gpus=1), "serve.replicas=1") as servers:
        servers.on_lost = on_lost
        ((url,),) = servers.base_urls.values()
        os.kill((await look(url))["pid"], signal.SIGKILL)
        async with asyncio.timeout(60):
            assert "n1: its policy servers are gone" in await lost
        assert servers.base_urls == {}


async def test_a_server_that_does_not_start_leaves_its_node_out(opened, tmp_path):
    (tmp_path / "python").write_text("#!/bin/sh\nexit 3\n")
    async with opened(InProcessCluster(2, gpus=1)) as servers:
        assert servers.base_urls == {}
    ((event),) = opened.events
    assert event["serves"] is False and "vLLM" in json.dumps(event)
