"""Trainings over real Ray nodes on one file system: one is killed and goes on; the real trainer learns as on one."""

from __future__ import annotations

import pytest

from tests.executable import webgym
from tests.jobs.local_cluster import local_cluster
from tests.stack_fixtures import needs
from tests.train.gradient_batch import write_batch
from tests.train.node_runs import NAME
from tests.train.train_data import settings_for
from webgym_cli.config.rl import RlSettings
from webgym_cli.store import checkpoints
from webgym_cli.store.run import RunDir, create_or_open

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def cluster():
    with local_cluster({"num_cpus": 1}) as cluster:
        yield cluster


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
