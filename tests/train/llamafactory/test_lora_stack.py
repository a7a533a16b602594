"""A real LoRA training of a tiny model: trained, killed before its merge, merged, served by vLLM, trained on."""

import asyncio
import json

import pytest

from tests.train.training import SECOND, Trained, kill_trainer, train
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.errors import JobError
from webgym_cli.loop.training import plan_training
from webgym_cli.serve.weights import check_model, digest
from webgym_cli.store.run import new_attempt
from webgym_cli.store.weights import list_tensors
from webgym_cli.train.execute import execute
from webgym_cli.train.llamafactory import lora_merge

pytestmark = pytest.mark.stack
LORA = {"finetuning_type": "lora", "lora_rank": 4, "num_train_epochs": 1, "learning_rate": 1e-2, "save_steps": 2}

CHECK = """
import json, sys
from safetensors.torch import load_file
base, merged, adapter = (load_file(path) for path in sys.argv[1:4])
scale = 2  # lora_alpha is twice the rank
changed, worst = [], 0.0
for name, weight in base.items():
    part = name.removesuffix(".weight")
    found = [key for key in adapter if part.removeprefix("model.") in key and key.endswith("lora_A.weight")]
    wanted = weight
    if found:
        low, high = adapter[found[0]], adapter[found[0].replace("lora_A", "lora_B")]
        wanted = weight + scale * (high.float() @ low.float())
        changed.append(name)
    worst = max(worst, (merged[name].float() - wanted.float()).abs().max().item())
print(json.dumps({"changed": changed, "worst": worst, "moved": max(
    (merged[name].float() - base[name].float()).abs().max().item() for name in changed)}))
"""


@pytest.fixture(scope="module")
def trained(trainable) -> Trained:
    """The trainer is killed in the middle, webgym dies before the merge, the same command is given a third time."""
    run, settings = trainable(24, **LORA)
    torn, killed = [], []

    def kill(event):
        if event["event"] == "train" and event["done"] >= 3 and not killed:
            killed.append(kill_trainer())

    with pytest.raises(JobError):
        asyncio.run(execute(plan_training(run, settings), run, settings, new_attempt(run), kill))
    assert plan_training(run, settings).start.mode == "continued"

    async def die(plan, *_):
        target = plan.folder / lora_merge.MERGING
        target.mkdir()
        (target / "model.safetensors").write_bytes(b"half a mod")
        torn.append(target)
        raise JobError("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lora_merge, "_export", die)
        with pytest.raises(JobError, match="killed"):
            asyncio.run(execute(plan_training(run, settings), run, settings, new_attempt(run), lambda event: None))
    assert torn[0].is_dir()
    assert plan_training(run, settings).start.mode == "finished"
    return train(run, settings)


def test_the_merge_goes_on_without_training_again(trained):
    assert not [event for event in trained.events if event["event"] == "train"]
    assert [event["event"] for event in trained.events].count("train_merge") == 1
    assert (trained.checkpoint.steps, trained.checkpoint.resumable) == (12, False)
    assert [path.name for path in trained.run.checkpoints.iterdir()] == [trained.checkpoint.name]


def test_the_published_weights_are_the_base_and_the_adapter(in_train_role, trained, tiny_model_dir):
    files = [tiny_model_dir / "model.safetensors", trained.folder / "model.safetensors"]
    files.append(trained.folder / "adapter/adapter_model.safetensors")
    record = json.loads(in_train_role("-c", CHECK, *files))
    assert record["worst"] < 1e-5 and record["moved"] > 1e-4
    assert all("language_model" in name for name in record["changed"]), "the vision tower is frozen"
    assert any("q_proj" in name for name in record["changed"])


def test_what_is_published_is_a_model_like_any_other(trained, tiny_model_dir):
    published, base = list_tensors(trained.folder), list_tensors(tiny_model_dir)
    assert {(name, shape) for name, _, shape in published} == {(name, shape) for name, _, shape in base}
    assert {kind for _, kind, _ in published} == {kind for _, kind, _ in base}
    assert check_model(str(trained.folder)) == str(trained.folder)
    assert digest(str(trained.folder)) != digest(str(tiny_model_dir))
    ids = [ModelTokens(str(folder)).response_ids("click [3]") for folder in (trained.folder, tiny_model_dir)]
    assert ids[0] == ids[1]


def test_the_next_training_goes_on_with_the_adapter_and_with_other_settings_puts_one_on_the_merged_weights(
    trained, trainable, tiny_model_dir
):
    run, settings = trainable(4, 24, SECOND, trained.run, "d1", **LORA)
    plan = plan_training(run, settings)
    assert plan.launch.config["model_name_or_path"] == str(tiny_model_dir)
    assert plan.launch.config["adapter_name_or_path"] == str(trained.folder / "adapter")
    assert plan.record["adapter"] == trained.checkpoint.adapter and plan.start.mode == "fresh"
    run, settings = trainable(4, 24, SECOND, trained.run, "d1", **LORA | {"lora_rank": 8})
    plan = plan_training(run, settings)
    assert plan.launch.config["model_name_or_path"] == str(trained.folder)
    assert plan.record["adapter"].base == trained.checkpoint.name and "adapter_name_or_path" not in plan.launch.config
    assert 0 < plan.disk_bytes < 2 * sum(path.stat().st_size for path in trained.folder.rglob("*.safetensors"))


async def test_vllm_serves_it(trained, tiny_model_dir, policy_server, monkeypatch):
    engine, events = policy_server._engine, []
    monkeypatch.setattr(policy_server, "_sink", events.append)
    before = engine._digest
    await policy_server.swap(str(trained.folder))
    try:
        assert policy_server.model == str(trained.folder)
        assert engine._digest == digest(str(trained.folder)) != before
    finally:
        await policy_server.swap(str(tiny_model_dir))
    assert [event["how"] for event in events if event["event"] == "swap"] == ["in_place"] * 2, events
