"""A training over real Ray nodes on one file system: one is killed in the middle, the run goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil
import pytest

from tests.train.nodes.node_runs import NAME, ready
from webgym_cli.errors import JobError
from webgym_cli.store import checkpoints
from webgym_cli.store.run import RunDir, new_attempt
from webgym_cli.train.execute import execute
from webgym_cli.train.plan import plan_training

ray = pytest.importorskip("ray")

SMALL = {"object_store_memory": 80 * 2**20}
QUICK = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}

pytestmark = pytest.mark.stack


@pytest.fixture
def cluster(monkeypatch):
    from ray.cluster_utils import Cluster

    head = {**SMALL, "num_cpus": 0, "include_dashboard": False, "_system_config": QUICK}
    monkeypatch.setenv("BEHAVE", "1:wait")  # nodes keep the environment that they were started in
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        cluster.add_node(num_cpus=1, **SMALL)
        yield cluster
    finally:
        cluster.shutdown()


@pytest.fixture
def role(tmp_path) -> Path:
    """The folders of a role environment, for the scripted trainer."""
    (tmp_path / "role/bin").mkdir(parents=True)
    (tmp_path / "role/bin/python").write_text("#!/bin/sh\n")
    return tmp_path / "role"


@pytest.fixture
def run(tmp_path) -> RunDir:
    return RunDir(tmp_path / "run")


def trainers(run: RunDir) -> list[psutil.Process]:
    """The scripted trainers of this test, on both nodes."""
    return [
        found
        for found in psutil.process_iter(["cmdline", "cwd"])
        if "launch.yaml" in (found.info["cmdline"] or ()) and str(found.info["cwd"]).startswith(str(run.root))
    ]


async def test_a_node_dies_and_the_training_goes_on_with_another(cluster, run, role, tmp_path, monkeypatch):
    settings = ready(run, role, tmp_path / "images", 20, executor="ray", nodes=2)
    address = settings.rollout.model_copy(update={"ray_address": cluster.address})
    settings = settings.model_copy(update={"rollout": address})
    events = []

    async def train():
        plan = plan_training(run, settings, {})
        return await execute(plan, run, settings, new_attempt(run), events.append)

    training = asyncio.create_task(train())
    shard = f"{NAME}.partial/checkpoint-1/global_step1/zero_pp_rank_1_mp_rank_00_optim_states.pt"
    while not (run.checkpoints / shard).is_file() and not training.done():  # noqa: ASYNC110 - files set no events
        await asyncio.sleep(0.1)
    victims = trainers(run)
    assert len(victims) >= 2, "one on each node"
    other = next(node for node in cluster.list_all_nodes() if node is not cluster.head_node)
    await asyncio.to_thread(cluster.remove_node, other, allow_graceful=False)
    with pytest.raises(JobError, match=r"^node 1 \(.*\) left the training: "):
        await training
    await asyncio.to_thread(psutil.wait_procs, victims, 30)
    assert trainers(run) == []

    monkeypatch.delenv("BEHAVE")
    cluster.add_node(num_cpus=1, **SMALL)
    events.clear()
    await train()
    assert [event["done"] for event in events if event["event"] == "train"] == [2, 3, 4]
    shards = (run.checkpoints / NAME).glob("global_step4/*_optim_states.pt")
    assert len(list(shards)) == 2 and checkpoints.version(run) == 1
