"""Trainings over real Ray nodes on one file system: one is killed and goes on; the real trainer learns as on one."""

import asyncio

import psutil
import pytest

from tests.executable import webgym
from tests.jobs.local_cluster import SMALL, local_cluster
from tests.stack_fixtures import needs
from tests.train.gradient_batch import write_batch
from tests.train.node_runs import NAME, ready
from tests.train.train_data import settings_for
from webgym_cli.config.rl import RlSettings
from webgym_cli.errors import JobError
from webgym_cli.loop.training import plan_training
from webgym_cli.store import checkpoints
from webgym_cli.store.run import RunDir, create_or_open, new_attempt
from webgym_cli.train.execute import execute

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def cluster():
    with local_cluster({"num_cpus": 1}) as cluster:
        yield cluster


def find_trainers(run: RunDir) -> list[psutil.Process]:
    """Return the scripted trainers of this test, on both nodes."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "cwd"])
        if "launch.yaml" in (process.info["cmdline"] or ()) and str(process.info["cwd"]).startswith(str(run.root))
    ]


@pytest.fixture
def improving(tiny_model_dir, tmp_path):
    """Returns how to make a run with a batch for policy gradients."""

    def make(name: str) -> RunDir:
        run = RunDir(tmp_path / name)
        settings = settings_for(tiny_model_dir, needs("train"), train={"algorithm": "grpo", "nproc_per_node": 1})
        learning = {
            "actor": {"ppo_mini_batch_size": 4, "optim": {"lr": 1e-3, "eps": 1e-3}},
            "trainer": {"deepspeed": "ds_config_cpu_zero2.json", "bf16": False},
        }
        create_or_open(run, settings.model_copy(update={"rl": RlSettings.model_validate(learning)}))
        write_batch(run, tiny_model_dir, NAME)
        return run

    return make


def test_two_nodes_learn_what_one_does(cluster, improving):
    alone, together = improving("alone"), improving("together")
    on_nodes = ("-s", "train.executor=ray", "-s", f"rollout.ray_address={cluster.address}")
    webgym(together.root.parent, "train", together.root, *on_nodes)
    webgym(alone.root.parent, "train", alone.root)
    one, two = (checkpoints.current(run) for run in (alone, together))
    assert one is not None and two is not None and (one.algorithm, one.steps) == (two.algorithm, two.steps)
    for name in ("actor/pg_loss", "actor/grad_norm", "actor/entropy", "critic/score/mean"):
        assert two.metrics[name] == pytest.approx(one.metrics[name], abs=1e-4), name
    assert one.metrics["actor/grad_norm"] > 0
    shards = list((together.checkpoints / NAME / "rl_state/actor").rglob("*_optim_states.pt"))
    assert len(shards) == 2, "one of each node"


async def test_a_node_dies_and_the_training_goes_on_with_another(cluster, tmp_path):
    run, role = RunDir(tmp_path / "run"), tmp_path / "role"
    (role / "bin").mkdir(parents=True)
    (role / "bin/llamafactory-cli").touch()
    settings = ready(run, role, tmp_path / "images", executor="ray", nodes=2)
    address = settings.rollout.model_copy(update={"ray_address": cluster.address})
    settings, events = settings.model_copy(update={"rollout": address}), []

    async def train():
        return await execute(plan_training(run, settings, {}), run, settings, new_attempt(run), events.append)

    (role / "behave").write_text("1:wait")
    training = asyncio.create_task(train())
    shard = f"{NAME}.partial/checkpoint-1/global_step1/zero_pp_rank_1_mp_rank_00_optim_states.pt"
    while not (run.checkpoints / shard).is_file() and not training.done():  # noqa: ASYNC110 - files set no events
        await asyncio.sleep(0.1)
    victims = find_trainers(run)
    assert len(victims) >= 2, "one on each node"
    other = next(node for node in cluster.list_all_nodes() if node is not cluster.head_node)
    await asyncio.to_thread(cluster.remove_node, other, allow_graceful=False)
    with pytest.raises(JobError, match=r"^node 1 on .* left the training: "):
        await training
    await asyncio.to_thread(psutil.wait_procs, victims, 30)
    assert find_trainers(run) == []

    (role / "behave").unlink()
    cluster.add_node(num_cpus=1, **SMALL)
    events.clear()
    await train()
    assert [event["done"] for event in events if event["event"] == "train"] == [2, 3, 4]
    shards = (run.checkpoints / NAME).glob("global_step4/*_optim_states.pt")
    assert len(list(shards)) == 2 and checkpoints.version(run) == 1
