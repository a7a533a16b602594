"""Two nodes train a tiny model with the real LLaMA-Factory and DeepSpeed; one is killed, and the run goes on."""

from __future__ import annotations

import json
import signal

import pytest

from tests.stack.killing import Command, refused
from tests.stack_fixtures import needs
from tests.train.train_data import prepare, rows, settings_for
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
    assert message.startswith("node 1 (") and "is not heard from for 20 s" in message
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
