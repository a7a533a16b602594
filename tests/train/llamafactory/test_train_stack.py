"""Real trainings of a tiny model with LLaMA-Factory and DeepSpeed. Each takes 10 to 90 seconds."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.train.training import FIRST, SECOND, Trained, train
from webgym_cli.config.shipped import find_deepspeed_file
from webgym_cli.errors import JobError
from webgym_cli.loop.training import plan_training

# the fixtures train, and DeepSpeed compiles its operators meanwhile where no set-up did: no test's limit counts that
pytestmark = [pytest.mark.stack, pytest.mark.timeout(600, func_only=True)]

NEW_RATE = 3e-4
PROCESSES = 2


@pytest.fixture(scope="session")
def first(trainable) -> Trained:
    return train(*trainable(save_steps=6))


@pytest.fixture(scope="session")
def deepspeed(tmp_path_factory) -> dict:
    """Settings of a training in two processes, whose weights are shared and whose optimizer is DeepSpeed's own."""
    config = json.loads(find_deepspeed_file("ds_config_cpu_zero3.json").read_text())
    config["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
    file = tmp_path_factory.mktemp("deepspeed") / "zero3_offload.json"
    file.write_text(json.dumps(config))
    own = {"deepspeed_config_filename": str(file), "train": {"nproc_per_node": PROCESSES}}
    return own | {"gradient_accumulation_steps": 4 // PROCESSES, "num_train_epochs": 1, "save_steps": 999999}


@pytest.fixture(scope="session")
def deepspeed_first(trainable, deepspeed) -> Trained:
    return train(*trainable(samples=6, **deepspeed))


def steps(trained: Trained) -> list[dict]:
    return [event for event in trained.events if event["event"] == "train" and "loss" in event]


def read_states(python: Path, *folders: Path) -> list[dict]:
    """Adam's step counters, learning rates and the norms of its moments, of each checkpoint."""
    code = """
import json, sys, torch
for folder in sys.argv[1:]:
    state = torch.load(f"{folder}/optimizer.pt", map_location="cpu", weights_only=True)
    held = state["state"].values()
    print(json.dumps({"steps": sorted({int(value["step"]) for value in held}),
        "rates": sorted({group["lr"] for group in state["param_groups"]}),
        "decays": [group["weight_decay"] for group in state["param_groups"]],
        "betas": [group["betas"] for group in state["param_groups"]],
        "moments": [[value[name].double().norm().item() for name in ("exp_avg", "exp_avg_sq")] for value in held]}))
"""
    done = subprocess.run([python, "-c", code, *folders], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def read_shards(python: Path, folder: Path) -> list[list[dict]]:
    """AdamW's options of each parameter group, of each process's DeepSpeed states."""
    code = """
import json, pathlib, sys, torch
def groups(value):
    if isinstance(value, dict) and "lr" in value and "params" in value:
        yield {name: value[name] for name in ("lr", "weight_decay", "betas")}
    elif isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from groups(inner)
for file in sorted(pathlib.Path(sys.argv[1]).glob("global_step*/*_optim_states.pt")):
    print("GROUPS " + json.dumps(list(groups(torch.load(file, map_location="cpu", weights_only=False)))))
"""
    done = subprocess.run([python, "-c", code, folder], capture_output=True, text=True, check=True)
    lines = (line.partition("GROUPS ")[2] for line in done.stdout.splitlines())
    return [json.loads(line) for line in lines if line]


def test_a_training_publishes_the_next_policy(first):
    assert [event["done"] for event in steps(first)] == list(range(1, 13))
    assert first.run.model(first.settings).resolve() == first.folder.resolve()
    assert (first.checkpoint.steps, first.checkpoint.version, first.checkpoint.resumable) == (12, 1, True)
    assert first.losses[-1] < first.losses[0]
    names = {path.name for path in first.folder.iterdir()}
    wanted = {"model.safetensors", "config.json", "tokenizer.json", "processor_config.json", "chat_template.jinja"}
    assert wanted | {"optimizer.pt", "scheduler.pt", "trainer_state.json"} <= names
    assert [path.name for path in first.run.checkpoints.iterdir()] == [FIRST]


def test_the_next_training_starts_with_the_moments_and_takes_the_new_rate(first, trainable, train_python, tmp_path):
    changed = {"learning_rate": NEW_RATE, "weight_decay": 0.25, "warmup_steps": 5, "save_steps": 999999}
    run, settings = trainable(9, 5, SECOND, first.run, "d1", train={"extra": {"adam_beta1": 0.8}}, **changed)
    plan = plan_training(run, settings)
    assert (plan.start.mode, plan.total_steps) == ("carried", 10)
    start = tmp_path / "start"

    def keep(event):
        if event["event"] == "train" and not start.exists():
            shutil.copytree(run.checkpoints / f"{SECOND}.start", start, copy_function=os.link)

    second = train(run, settings, keep)
    assert [event["learning_rate"] for event in steps(second)] == [NEW_RATE] * 10, "no second warm-up"
    assert second.events[-1]["steps"] == 10
    state = json.loads((second.folder / "trainer_state.json").read_text())
    assert (state["epoch"], state["max_steps"], state["global_step"]) == (2.0, 10, 10)
    before, after, last = read_states(train_python, first.folder, start, second.folder)
    assert after["moments"] == before["moments"]
    assert (after["steps"], after["rates"], before["rates"]) == ([12], [NEW_RATE], [1e-3])
    assert (before["decays"], last["decays"], last["betas"]) == ([0.01, 0.0], [0.25, 0.0], [[0.8, 0.999]] * 2)
    assert last["steps"] == [22]
    state = json.loads((start / "trainer_state.json").read_text())
    assert (state["global_step"], state["epoch"], state["log_history"]) == (0, 0.0, [])
    assert (state["save_steps"], state["eval_steps"]) == (999999, state["logging_steps"])
    assert (start / "model.safetensors").samefile(first.folder / "model.safetensors")
    assert second.losses[0] < first.losses[0]
    assert (second.checkpoint.version, second.checkpoint.parent) == (2, FIRST)


def test_deepspeed_trains_in_each_process(deepspeed_first):
    assert (deepspeed_first.checkpoint.steps, deepspeed_first.checkpoint.resumable) == (2, True)
    assert deepspeed_first.losses[-1] < deepspeed_first.losses[0] * 1.2
    assert [event["done"] for event in steps(deepspeed_first)] == [1, 2]
    shards = list(deepspeed_first.folder.glob("global_step*/*_optim_states.pt"))
    assert len(shards) == PROCESSES
    assert (deepspeed_first.folder / "model.safetensors").is_file()


def test_deepspeed_carries_the_moments(deepspeed_first, trainable, deepspeed, train_python):
    changed = deepspeed | {"learning_rate": NEW_RATE, "weight_decay": 0.25, "warmup_steps": 5}
    changed["train"] = deepspeed["train"] | {"extra": {"adam_beta1": 0.8}}
    run, settings = trainable(9, 2, SECOND, deepspeed_first.run, "d1", **changed)
    assert plan_training(run, settings).start.mode == "carried"
    second = train(run, settings)
    assert [event["learning_rate"] for event in steps(second)] == [NEW_RATE] * 3, "no second warm-up"
    assert second.checkpoint.steps == 3
    assert second.losses[0] < deepspeed_first.losses[0]
    shards = read_shards(train_python, second.folder)
    assert len(shards) == PROCESSES
    for groups in shards:
        assert {group["weight_decay"] for group in groups} == {0.25, 0.0}
        assert {(group["lr"], *group["betas"]) for group in groups} == {(NEW_RATE, 0.8, 0.999)}


def test_a_missing_image_fails_with_its_name(trainable, images):
    run, settings = trainable(2, 200)
    file = next(images.glob("200-*.png"))
    file.unlink()
    with pytest.raises(JobError) as caught:
        train(run, settings)
    assert file.name in str(caught.value) and "train.log" in str(caught.value)
    assert caught.value.exit_code == 4
