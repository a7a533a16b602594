"""A rollout over real Ray nodes: one is killed in the middle, everything is finished elsewhere, nothing twice."""

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter

import psutil
import pytest

from tests.jobs.local_cluster import local_cluster
from tests.records.builders import new_run
from webgym_cli.config.load import load
from webgym_cli.loop import rollouts
from webgym_cli.loop.context import StageContext
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import scan
from webgym_cli.store.run import RunDir

EPISODES = 60


@pytest.fixture(scope="module")
def cluster():
    with local_cluster(*[{"num_cpus": 1}] * 2) as cluster:
        yield cluster


def browsers_of(pid: int) -> list[psutil.Process]:
    return [process for process in psutil.Process(pid).children(recursive=True) if "chrom" in process.name()]


@pytest.mark.stack
@pytest.mark.browser
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_nothing_on_the_nodes_outlives_the_command(cluster, tmp_path, number, code):
    run, settings = RunDir(tmp_path / "run"), ["tasks.train=miniwob:enter-text", "rollout.executor=ray"]
    command = ["rollout", str(run.root), "--policy", "oracle", "--episodes", "2000", "--json"]
    for setting in (*settings, "rollout.concurrency=2", f"rollout.ray_address={cluster.address}"):
        command += ["-s", setting]
    words, quiet = [sys.executable, "-m", "webgym_cli", *command], subprocess.DEVNULL
    driver = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=quiet, text=True, start_new_session=True)
    assert driver.stdout is not None
    family = []
    for line in driver.stdout:  # whatever Ray has to say, this is data only
        if (event := json.loads(line))["event"] == "rank":
            family.append(psutil.Process(event["pid"]))
        if event["event"] == "trajectory":
            break
    assert len(family) == 2
    family += [browser for rank in family for browser in browsers_of(rank.pid)]
    driver.send_signal(number)
    rest = [json.loads(line) for line in driver.stdout]
    assert driver.wait(60) == code
    psutil.wait_procs(family, 30)
    assert [process for process in family if process.is_running()] == []
    stored = [trajectory.outcome.failure for trajectory in scan(run, Split.TRAIN, 0)]
    cancelled = stored.count(FailureKind.CANCELLED)
    assert cancelled <= (0 if number is signal.SIGKILL else 4)  # each may have been between two episodes
    assert all(event["event"] == "trajectory" for event in rest)


@pytest.mark.stack
@pytest.mark.browser
async def test_a_node_that_dies_costs_nothing_but_its_running_episodes(cluster, tmp_path, capfd):
    events, ranks, victims, killed = [], {}, [], []
    given = ["tasks.train=miniwob:enter-text", f"rollout.episodes={EPISODES}", "rollout.concurrency=2"]
    settings = load(overrides=[*given, "rollout.executor=ray", f"rollout.ray_address={cluster.address}"])
    run = new_run(tmp_path / "run", settings)
    nodes = {node.node_id: node for node in cluster.list_all_nodes()}

    def sink(event):
        events.append(event)
        if event["event"] == "rank":
            ranks[event["rank"]] = event
        if not killed and len(ranks) == 2 and sum(event["event"] == "trajectory" for event in events) >= 20:
            victims.extend(browsers_of(ranks[1]["pid"]))
            killed.append(nodes[ranks[1]["node"]])
            cluster.remove_node(killed[0], allow_graceful=False)

    async with StageContext(run, settings, tmp_path / "logs", sink) as context:
        summary = await rollouts.rollout(context, Split.TRAIN, "oracle")

    damage = []
    trajectories = list(scan(run, Split.TRAIN, 0, damage))
    finished = Counter(trajectory.episode for trajectory in trajectories if trajectory.outcome.failure is None)
    assert len(finished) == EPISODES and set(finished.values()) == {1}
    assert len({trajectory.id for trajectory in trajectories}) == len(trajectories)
    assert damage == []
    rows = [event["id"] for event in events if event["event"] == "trajectory"]
    assert sorted(rows) == sorted(trajectory.id for trajectory in trajectories)
    assert (summary["episodes"], summary["owed"], summary["collected"]) == (EPISODES, 0, EPISODES)
    assert (summary["ranks"], summary["ranks_lost"]) == (2, 1)
    lost = [event for event in events if event["event"] == "rank_lost"]
    assert [event["rank"] for event in lost] == [1], lost
    assert {trajectory.outcome.failure for trajectory in trajectories} <= {None, FailureKind.CANCELLED}
    assert victims
    await asyncio.to_thread(psutil.wait_procs, victims, 20)
    assert [process for process in victims if process.is_running()] == []
    assert capfd.readouterr().out == ""
