"""A training over nodes that Ray placed, without Ray: real actors in this process, a scripted trainer on each node."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests.train.nodes.node_runs import NAME, ready
from webgym_cli.errors import JobError, UsageError, VenvError
from webgym_cli.jobs import ray_cluster
from webgym_cli.jobs.ray_cluster import Node, NodeLostError
from webgym_cli.store import checkpoints
from webgym_cli.store.run import new_attempt
from webgym_cli.train.execute import execute
from webgym_cli.train.nodes import ray_nodes
from webgym_cli.train.plan import plan_training


class InProcessCluster:
    """Nodes n0 (this one), n1, ...; the connection of a dead one ends."""

    here, here_id = "127.0.0.1", "n0"

    def __init__(self, count=2):
        self.known = [Node(f"n{number}", "127.0.0.1", f"host{number}") for number in range(count)]
        self.actors = {}
        self.killed = []

    def nodes(self, cpus, gpus=0.0):
        return self.known

    def create_actor(self, kind, node, *, cpus, gpus=0.0):
        actor = kind()
        actor.node = node.id
        return actor

    async def call(self, method, *arguments, seconds=None):
        task = asyncio.ensure_future(method(*arguments))
        self.actors[method.__self__.node, method.__name__] = task
        try:
            return await task
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():
                raise
            raise NodeLostError("The node was lost.") from None

    async def kill(self, handle):
        self.killed.append(handle.node)

    def die(self, node):
        """End a node's part as the end of its process would."""
        self.actors[node, "join"].cancel()


class Scene:
    """A run and the cluster that trains on it."""

    def __init__(self, run, role, tmp_path):
        self.run, self.role, self.images = run, role, tmp_path / "images"
        self.cluster = InProcessCluster()
        self.events = []

    def ready(self, *names, timeout=30, **train):
        self.settings = ready(
            self.run, self.role, self.images, timeout, *names, **{"executor": "ray", "nodes": 2} | train
        )

    async def train(self, sink=None):
        plan = plan_training(self.run, self.settings, {})
        return await execute(plan, self.run, self.settings, new_attempt(self.run), sink or self.events.append)

    def told(self):
        return [event["message"] for event in self.events if "message" in event]

    def shards(self, step):
        folder = self.run.checkpoints / f"{NAME}.partial/checkpoint-{step}"
        return sorted(path.name for path in folder.glob("global_step*/*_optim_states.pt"))


@pytest.fixture
def scene(run, role, tmp_path, monkeypatch):
    scene = Scene(run, role, tmp_path)

    @asynccontextmanager
    async def open_cluster(settings):
        yield scene.cluster

    monkeypatch.setattr(ray_nodes, "open_cluster", open_cluster)
    return scene


async def test_a_node_that_sees_the_run_works_in_it(scene, tmp_path):
    scene.ready()
    await scene.train()
    assert checkpoints.version(scene.run) == 1
    assert scene.cluster.killed == ["n1"]
    assert (scene.run.logs / "latest/train.node-1.log").is_file()
    assert not list(scene.run.root.rglob("marker-*"))


async def test_a_node_that_dies_is_named_and_the_training_goes_on(scene, monkeypatch):
    monkeypatch.setenv("BEHAVE", "1:wait")
    scene.ready()
    dying = asyncio.create_task(scene.train())
    while len(scene.shards(1)) < 2:
        await asyncio.sleep(0.02)
        assert not dying.done()
    scene.cluster.die("n1")
    with pytest.raises(JobError, match=r"^node 1 \(.*\) left the training: its process has ended"):
        await dying
    monkeypatch.setenv("BEHAVE", "")
    scene.events.clear()
    await scene.train()
    assert [event["done"] for event in scene.events if event["event"] == "train"] == [2, 3, 4]


async def test_an_error_there_is_told_in_its_own_words(scene, monkeypatch):
    monkeypatch.setenv("BEHAVE", "1:raise")
    scene.ready()
    with pytest.raises(JobError, match=r"^node 1 \(.*\): .*ValueError: bad luck"):
        await scene.train()


async def test_a_node_without_the_trainer_is_refused(scene, monkeypatch):
    scene.ready()

    def missing(settings, role):
        raise VenvError("the train environment has not been set up", hint="webgym setup --role train")

    monkeypatch.setattr("webgym_cli.train.nodes.worker.role_python", missing)
    with pytest.raises(VenvError, match=r"node 1 \(host1, 127.0.0.1\): the train environment has not been set up"):
        await scene.train()


async def test_a_node_that_does_not_see_the_run_is_refused(scene, monkeypatch):
    async def unseen(file, seconds):
        return False

    scene.ready()
    monkeypatch.setattr(ray_cluster, "wait_for_file", unseen)
    with pytest.raises(UsageError, match=r"host1 \(127.0.0.1\) does not see .*run as it is here") as caught:
        await scene.train()
    assert "every node mounts" in caught.value.hint


async def test_too_few_nodes_are_told(scene):
    scene.ready(nodes=3)
    with pytest.raises(UsageError, match=r"train.nodes is 3, but the Ray cluster has 1 nodes beside this one"):
        await scene.train()


def test_ray_and_torchruns_variables_exclude_each_other(scene):
    scene.ready()
    with pytest.raises(UsageError, match=r"train.executor is ray, but NNODES is 2"):
        plan_training(scene.run, scene.settings, {"NNODES": "2", "NODE_RANK": "0"})


def test_a_rendezvous_port_that_is_none_is_refused(scene):
    scene.ready()
    with pytest.raises(UsageError, match=r"MASTER_PORT: 70000 is no port"):
        plan_training(scene.run, scene.settings, {"MASTER_PORT": "70000"})


def test_the_plan_tells_the_nodes(scene):
    scene.ready(nodes=3)
    plan = plan_training(scene.run, scene.settings, {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}).to_json()
    assert plan["nodes"]["rendezvous"] == "10.0.0.1:29500"
    assert [share["node"] for share in plan["nodes"]["shares"]] == [0, 1, 2]
    assert plan["nodes"]["placed_by"] == "ray"
