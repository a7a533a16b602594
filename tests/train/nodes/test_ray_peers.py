"""A training over nodes that Ray placed, without Ray: real actors in this process, a scripted trainer on each node."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests.train.gradient_batch import write_batch
from tests.train.nodes.node_runs import NAME, ready
from webgym_cli.errors import JobError, UsageError, VenvError
from webgym_cli.jobs.ray_cluster import ActorLostError, Node
from webgym_cli.store import checkpoints
from webgym_cli.store.run import new_attempt
from webgym_cli.train.execute import execute
from webgym_cli.train.nodes import peers, ray_peers
from webgym_cli.train.plan import plan_training


class InProcessCluster:
    """Nodes n0 (this one), n1, ...; the actor of a dead node does not answer."""

    here, here_id = "127.0.0.1", "n0"

    def __init__(self, count=2):
        self.known = [Node(f"n{number}", "127.0.0.1", f"host{number}") for number in range(count)]
        self.actors, self.dead, self.sent = {}, set(), []

    def nodes(self, cpus, gpus=0.0):
        return self.known

    def create_actor(self, kind, node, *, cpus, gpus=0.0):
        self.actors[node.id] = actor = kind()
        actor.node = node.id
        return actor

    async def call(self, method, *arguments, seconds=None):
        if method.__self__.node in self.dead:
            raise ActorLostError("The node was lost.")
        if method.__name__ == "put":
            self.sent.append(arguments[0])
        return await method(*arguments)

    async def kill(self, handle):
        await handle.stop()


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
    monkeypatch.setenv("WEBGYM_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(peers, "POLL_SECONDS", 0.05)
    scene = Scene(run, role, tmp_path)

    @asynccontextmanager
    async def open_cluster(settings):
        yield scene.cluster

    monkeypatch.setattr(ray_peers, "open_cluster", open_cluster)
    return scene


async def test_a_node_that_sees_the_run_works_in_it(scene, tmp_path):
    scene.ready()
    await scene.train()
    assert checkpoints.version(scene.run) == 1
    assert scene.cluster.sent == [] and not (tmp_path / "home").exists()
    assert (scene.run.logs / "latest/train.node-1.log").is_file()
    assert not list(scene.run.nodes.glob("marker-*"))


async def test_a_node_apart_gets_everything_and_gives_its_share_back(scene, tmp_path):
    scene.ready(node_storage="separate")
    await scene.train()
    made = scene.run.checkpoints / NAME
    assert sorted(path.name for path in made.glob("global_step4/*_optim_states.pt")) == [
        "zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "zero_pp_rank_1_mp_rank_00_optim_states.pt",
    ]
    assert (made / "rng_state_1.pth").is_file()
    assert any("host1, 127.0.0.1) does not see" in line and "6 files" in line for line in scene.told())
    tree = next((tmp_path / "home/nodes").glob("*/tree"))
    assert (tree / str(scene.images / "0-before.png").lstrip("/")).is_file()


async def test_only_imitation_is_sent_to_a_node_apart(scene, tmp_path):
    scene.ready(node_storage="separate", algorithm="grpo")
    write_batch(scene.run, tmp_path / "tiny", NAME)
    with pytest.raises(UsageError, match=r"host1.* does not see .*/a run, where train\.algorithm=grpo works") as caught:
        await scene.train()
    assert caught.value.hint.startswith("mount the run at the same path on every node")
    assert scene.cluster.sent == []


async def test_the_next_training_is_sent_only_what_is_new(scene):
    scene.ready(node_storage="separate", keep_optimizer_state=False)
    await scene.train()
    first = len(scene.cluster.sent)
    scene.ready("model_20260110_000000", "d1", node_storage="separate", keep_optimizer_state=False)
    await scene.train()
    names = [parcel.rpartition("/")[2].partition('"')[0] for parcel in scene.cluster.sent[first:]]
    assert first == 6 and not [name for name in names if name.endswith(".png")]
    assert "model.safetensors" in names
    assert checkpoints.version(scene.run) == 2


async def test_a_node_that_dies_is_named_and_the_training_goes_on(scene, monkeypatch):
    monkeypatch.setenv("BEHAVE", "1:wait")
    scene.ready(node_storage="separate")
    dying = asyncio.create_task(scene.train())
    while len(scene.shards(1)) < 2:
        await asyncio.sleep(0.02)
        assert not dying.done()
    scene.cluster.dead.add("n1")
    with pytest.raises(JobError, match=r"^node 1 \(host1, 127.0.0.1\) left the training: The node was lost"):
        await dying
    scene.cluster.dead.clear()
    monkeypatch.setenv("BEHAVE", "")
    scene.events.clear()
    await scene.train()
    assert [event["done"] for event in scene.events if event["event"] == "train"] == [2, 3, 4]


async def test_an_error_there_is_told_in_its_own_words(scene, monkeypatch):
    monkeypatch.setenv("BEHAVE", "1:raise")
    scene.ready(node_storage="separate")
    with pytest.raises(JobError, match=r"^node 1 \(host1, 127.0.0.1\): .*ValueError: bad luck"):
        await scene.train()


async def test_a_node_without_the_trainer_is_refused(scene, monkeypatch):
    scene.ready()

    def missing(settings, role):
        raise VenvError("the train environment has not been set up", hint="webgym setup --role train")

    monkeypatch.setattr("webgym_cli.train.nodes.ray_worker.role_python", missing)
    with pytest.raises(VenvError, match=r"node 1 \(host1, 127.0.0.1\): the train environment has not been set up"):
        await scene.train()


async def test_too_few_nodes_are_told(scene):
    scene.ready(nodes=3)
    with pytest.raises(UsageError, match=r"train.nodes is 3, but the Ray cluster has 1 nodes beside this one"):
        await scene.train()


def test_ray_and_torchruns_variables_exclude_each_other(scene):
    scene.ready()
    with pytest.raises(UsageError, match=r"train.executor is ray, but NNODES is 2"):
        plan_training(scene.run, scene.settings, {"NNODES": "2", "NODE_RANK": "0"})


def test_the_plan_tells_the_nodes(scene):
    scene.ready(nodes=3)
    plan = plan_training(scene.run, scene.settings, {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}).to_json()
    assert plan["nodes"]["rendezvous"] == "10.0.0.1:29500"
    assert [share["node"] for share in plan["nodes"]["shares"]] == [0, 1, 2]
    assert plan["nodes"]["placed_by"] == "ray" and "by node 0, once" in plan["nodes"]["files"]
