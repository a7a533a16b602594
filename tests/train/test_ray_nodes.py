"""A training over the nodes of a cluster without Ray: real actors in this process, a scripted trainer on each node."""

import asyncio
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.serve.one_machine import OneMachine
from tests.train.node_runs import NAME, ready
from webgym_cli.errors import JobError, PeerLostError, UsageError, VenvError, WebGymError
from webgym_cli.jobs import ray_cluster
from webgym_cli.loop.training import plan_training
from webgym_cli.store import checkpoints
from webgym_cli.store.run import new_attempt
from webgym_cli.train import process_limits, ray_nodes
from webgym_cli.train.execute import execute
from webgym_cli.train.trainer_log import trainer_error


class Scene:
    """A run and the cluster that trains on it."""

    def __init__(self, run, role, tmp_path):
        self.run, self.role, self.images = run, role, tmp_path / "images"
        self.cluster = OneMachine(2)
        self.events = []

    def ready(self, **train):
        self.settings = ready(self.run, self.role, self.images, **{"executor": "ray", "nodes": 2} | train)

    def plan(self, environ=None):
        return plan_training(self.run, self.settings, environ or {})

    async def train(self, sink=None):
        return await execute(self.plan(), self.run, self.settings, new_attempt(self.run), sink or self.events.append)

    def shards(self, step):
        folder = self.run.checkpoints / f"{NAME}.partial/checkpoint-{step}"
        return sorted(path.name for path in folder.glob("global_step*/*_optim_states.pt"))

    async def train_until(self, step):
        """Start a training and return its task once both nodes have saved a step."""
        training = asyncio.create_task(self.train())
        while len(self.shards(step)) < 2:
            await asyncio.sleep(0.02)
            assert not training.done(), await training
        return training


@pytest.fixture
async def scene(run, role, tmp_path, monkeypatch):
    scene = Scene(run, role, tmp_path)

    @contextmanager
    def open_cluster(settings):
        yield scene.cluster

    monkeypatch.setattr(ray_nodes, "open_cluster", open_cluster)
    monkeypatch.setattr(ray_nodes, "POLL_SECONDS", 0.05)
    monkeypatch.setattr("webgym_cli.jobs.ray_cluster.open_cluster", open_cluster)
    scene.ready()
    yield scene
    for actor in scene.cluster.actors:  # those of nodes that are "dead"
        await actor.close()


async def test_each_node_runs_its_trainer_in_the_folder_of_the_run(scene):
    await scene.train()
    assert checkpoints.version(scene.run) == 1
    assert scene.cluster.killed == ["n1"]
    assert (scene.run.logs / "latest/train.node-1.log").is_file()
    assert not list(scene.run.root.rglob("marker-*"))


async def test_a_node_that_dies_is_named_and_the_training_goes_on(scene, monkeypatch):
    monkeypatch.setenv("BEHAVE", "1:wait")
    training = await scene.train_until(1)
    scene.cluster.die("n1")
    with pytest.raises(JobError, match=r"^node 1 on host1 \(127.0.0.1\) left the training: its node died") as caught:
        await training
    assert caught.value.hint.startswith(f"webgym resume {scene.run.root}")
    monkeypatch.setenv("BEHAVE", "")
    scene.cluster = OneMachine(2)
    scene.events.clear()
    await scene.train()
    assert [event["done"] for event in scene.events if event["event"] == "train"] == [2, 3, 4]


async def test_a_node_that_does_not_answer_is_named(scene, monkeypatch):
    monkeypatch.setenv("BEHAVE", "1:hang")
    training = await scene.train_until(1)
    monkeypatch.setattr(ray_cluster, "SILENCE", 5.0)
    monkeypatch.setattr(ray_nodes, "KILL_MARGIN", 0.0)
    scene.cluster.hanging.add("n1")
    # 90 s if a call was under way when the limit was lowered
    with pytest.raises(JobError, match=r"^node 1 .* left the training: no answer for (5|90) s"):
        await training


async def test_a_stopped_training_ends_the_trainers_of_all_nodes(scene, monkeypatch):
    monkeypatch.setenv("BEHAVE", "1:wait")
    training = await scene.train_until(1)
    training.cancel()
    await asyncio.wait((training,))
    assert training.cancelled() and [actor._job.poll() for actor in scene.cluster.actors] == [143]


@pytest.mark.parametrize(("rank", "where"), [(1, r"node 1 on host1 \(127.0.0.1\): "), (0, "")])
async def test_the_error_of_the_node_that_failed_first_is_raised(scene, monkeypatch, rank, where):
    monkeypatch.setenv("BEHAVE", f"{rank}:raise")
    with pytest.raises(JobError, match=rf"^{where}the trainer failed \(exit status 1\): ValueError: bad luck"):
        await scene.train()


async def test_a_node_s_trainer_runs_by_the_interpreter_of_its_node(scene, monkeypatch):
    spawn = ray_nodes.Job.spawn

    def refuse(argv, **options):
        if argv[0] != "/node/bin/python":
            return spawn(argv, **options)
        raise JobError(f"not started: {argv[-1]}")

    monkeypatch.setattr(ray_nodes, "role_python", lambda settings, role: Path("/node/bin/python"))
    monkeypatch.setattr(ray_nodes.Job, "spawn", refuse)
    with pytest.raises(JobError, match=r"node 1 .*not started: .*\.(json|yaml)"):
        await scene.train()


@pytest.mark.parametrize(("gpus", "here"), [((), "6,7"), (("4", "5"), "4,5")])
async def test_a_node_trains_on_the_gpus_that_ray_has_reserved_there(scene, monkeypatch, gpus, here):
    started, spawn = {}, ray_nodes.Job.spawn

    def note(argv, *, env, **options):
        started[env["PET_NODE_RANK"]] = env["CUDA_VISIBLE_DEVICES"]
        return spawn(argv, env=env, **options)

    monkeypatch.setattr(ray_nodes.Job, "spawn", note)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,7")  # of the one process that stands for both nodes
    plan = scene.plan()
    named = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
    plan = replace(plan, launch=replace(plan.launch, env=plan.launch.env | named))
    await execute(plan, scene.run, scene.settings, new_attempt(scene.run), scene.events.append)
    assert started == {"0": here, "1": "6,7"}


@pytest.fixture
def limited(scene, monkeypatch):
    """The scene with a limit of 3 s without progress."""
    monkeypatch.setattr(process_limits, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(process_limits, "STALL_FACTOR", 0)
    scene.ready(stall_minutes=3 / 60)
    return scene


async def test_a_node_s_trainer_waits_while_the_first_node_s_writes(limited, monkeypatch):
    monkeypatch.setenv("BEHAVE", "0:talk")
    await limited.train()
    assert checkpoints.version(limited.run) == 1


async def test_a_node_s_trainer_that_hangs_once_the_others_have_ended_is_ended(limited, monkeypatch):
    monkeypatch.setenv("BEHAVE", "1:stay")
    with pytest.raises(JobError, match=r"^node 1 .*: the trainer has made no progress"):
        await limited.train()


async def test_a_node_without_the_trainer_is_refused(scene, monkeypatch):
    def missing(settings, role):
        raise VenvError("the train environment has not been set up", hint="webgym setup --role train")

    monkeypatch.setattr(ray_nodes, "role_python", missing)
    with pytest.raises(VenvError, match=r"node 1 on host1 .*: the train environment has not been set up") as caught:
        await scene.train()
    assert caught.value.hint == "webgym setup --role train"


async def test_a_bug_on_a_node_is_raised_with_its_name(scene, monkeypatch):
    monkeypatch.setattr(ray_nodes, "role_python", lambda settings, role: 1 / 0)
    with pytest.raises(WebGymError, match=r"^node 1 .*: ZeroDivisionError") as caught:
        await scene.train()
    assert caught.value.hint.startswith("webgym resume")


async def test_a_node_that_does_not_see_the_run_is_refused(scene, monkeypatch):
    async def unseen(file):
        return False

    monkeypatch.setattr(ray_cluster, "wait_for_file", unseen)
    with pytest.raises(UsageError, match=r"host1 \(127.0.0.1\) does not see .*run as it is here") as caught:
        await scene.train()
    assert "every node mounts" in caught.value.hint
    assert not (scene.run.logs / "latest/train.log").exists()


async def test_too_few_nodes_are_refused(scene):
    scene.ready(nodes=3)
    with pytest.raises(UsageError, match=r"train\.nodes is 3, .*cluster has 1 "):
        await scene.train()


@pytest.mark.parametrize(
    ("train", "nodes"), [({}, 2), ({"nodes": None}, 4), ({"nodes": 3}, 3), ({"executor": "local", "nodes": 3}, 1)]
)
def test_a_training_takes_the_nodes_of_the_setting_or_all(scene, train, nodes):
    scene.cluster = OneMachine(4)
    scene.ready(nproc_per_node=2, **train)
    plan = scene.plan()
    assert (plan.launch.placement.nodes, plan.start.training.world_size) == (nodes, 2 * nodes)
    assert plan.to_json()["nodes"] == nodes


@pytest.mark.parametrize("count", ["2", "2:4", "many"])
def test_torchruns_variables_are_refused_with_the_command_to_type(scene, count):
    with pytest.raises(UsageError, match=f"NNODES is {count}") as caught:
        scene.plan({"NNODES": count, "NODE_RANK": "0", "MASTER_ADDR": "a"})
    assert "ray symmetric-run" in caught.value.hint
    assert scene.plan({"NNODES": "1"}).launch.placement.nodes == 2


@pytest.mark.parametrize(
    ("code", "line", "lost"),
    [
        (1, "RuntimeError: [x/pair.cc:537] Connection closed by peer [10.0.0.2]:4321", True),
        (1, "torch.distributed.DistNetworkError: failed to recv, got 0 bytes", True),
        (1, "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited", True),
        (1, "ValueError: bad luck", False),
        (1, "torch.OutOfMemoryError: CUDA out of memory.", False),
        (137, "RuntimeError: Connection closed by peer", False),
    ],
)
def test_an_error_about_a_lost_peer_is_told_from_others(tmp_path, code, line, lost):
    (tmp_path / "log").write_text(f"Traceback:\n{line}\n")
    assert isinstance(trainer_error(code, tmp_path / "log"), PeerLostError) is lost
