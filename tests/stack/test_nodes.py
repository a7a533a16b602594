"""Two nodes train a tiny model with the real trainers and DeepSpeed; one is killed, and the run goes on."""

from __future__ import annotations

import json
import signal

import pytest

from tests.executable import Command, refused, webgym
from tests.stack_fixtures import needs
from tests.train.gradient_batch import write_batch
from tests.train.train_data import prepare, rows, settings_for
from webgym_cli.config.rl import RlSettings
from webgym_cli.store import checkpoints
from webgym_cli.store.run import RunDir, create_or_open

pytestmark = pytest.mark.stack

NAME = "model_20260101_000000"
STEPS = 8


@pytest.fixture
def run(tiny_model_dir, tmp_path) -> RunDir:
    run = RunDir(tmp_path / "run")
    settings = settings_for(
        tiny_model_dir,
        needs("train"),
        train={"nproc_per_node": 1, "node_timeout": 20},
        deepspeed_config_filename="ds_config_cpu_zero1.json",
        per_device_train_batch_size=1,
        gradient_accumulation_steps=1,
        num_train_epochs=1,
        save_steps=1,
    )
    create_or_open(run, settings)
    prepare(run, settings, rows(tmp_path / "images", 2 * STEPS), NAME)
    return run


def on_both(run: RunDir, *words: object) -> tuple[Command, Command]:
    """Start a command as node 0 and as node 1 of two."""
    more = {"NNODES": "2", "MASTER_ADDR": "127.0.0.1"}
    first, other = (Command(run.root.parent, *words, **more, NODE_RANK=str(rank)) for rank in range(2))
    return first, other


def test_a_node_is_killed_and_the_run_goes_on_from_the_last_checkpoint(run):
    first, other = on_both(run, "train", run.root)
    first.until(lambda: list(run.checkpoints.glob(f"{NAME}.partial/checkpoint-2/trainer_state.json")))
    other.send(signal.SIGKILL)
    assert first.finish() == 4
    message, hint = refused(first)
    assert message.startswith("node 1 (") and "its process has ended" in message
    assert hint.startswith(f"webgym resume {run.root}, on every node")
    assert checkpoints.current(run) is None

    first, other = on_both(run, "resume", run.root)
    assert first.finish() == 0, first.err.read_text()[-3000:]
    assert other.finish() == 0, other.err.read_text()[-3000:]
    events = [json.loads(line) for line in first.out.read_text().splitlines()]
    done = [event["done"] for event in events if event["event"] == "train" and {"done", "loss"} <= event.keys()]
    assert done[0] > 2 and done[-1] == STEPS and done == [*range(done[0], STEPS + 1)]
    made = checkpoints.current(run)
    assert made is not None and (made.name, made.steps, made.resumable) == (NAME, STEPS, True)
    shards = sorted(path.name for path in (run.checkpoints / NAME).glob("global_step*/*_optim_states.pt"))
    assert len(shards) == 2, "one of each node"


@pytest.fixture
def improving(tiny_model_dir, tmp_path):
    """Returns how to make a run with a batch for policy gradients."""

    def made(name: str) -> RunDir:
        run = RunDir(tmp_path / name)
        settings = settings_for(tiny_model_dir, needs("train"), train={"algorithm": "grpo", "nproc_per_node": 1})
        learning = {
            "actor": {"ppo_mini_batch_size": 4, "optim": {"lr": 1e-3, "eps": 1e-3}},
            "trainer": {"deepspeed": "ds_config_cpu_zero2.json", "bf16": False},
        }
        create_or_open(run, settings.model_copy(update={"rl": RlSettings.model_validate(learning)}))
        write_batch(run, tiny_model_dir, NAME)
        return run

    return made


def test_by_gradients_two_nodes_learn_what_one_does(improving):
    alone, together = improving("alone"), improving("together")
    first, other = on_both(together, "train", together.root)
    assert first.finish() == 0, first.err.read_text()[-3000:]
    assert other.finish() == 0, other.err.read_text()[-3000:]
    webgym(alone.root.parent, "train", alone.root)
    one, two = (checkpoints.current(run) for run in (alone, together))
    assert one is not None and two is not None and (one.algorithm, one.steps) == (two.algorithm, two.steps)
    for name in ("actor/pg_loss", "actor/grad_norm", "actor/entropy", "critic/score/mean"):
        assert two.metrics[name] == pytest.approx(one.metrics[name], abs=1e-4), name
    assert one.metrics["actor/grad_norm"] > 0
    shards = list((together.checkpoints / NAME / "rl_state/actor").rglob("*_optim_states.pt"))
    assert len(shards) == 2, "one of each node"
