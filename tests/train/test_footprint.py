"""Every number here is worked out by hand."""

import json
import struct
from collections import namedtuple

import pytest

from tests.tables import each
from webgym_cli.config.rl import RlSettings
from webgym_cli.errors import StoreError
from webgym_cli.train import footprint

MODEL = [
    ("model.visual.blocks.0.qkv.weight", "BF16", (10, 10)),  # 100
    ("model.language_model.embed_tokens.weight", "BF16", (30, 10)),  # 300
    ("model.language_model.layers.0.q_proj.weight", "BF16", (20, 10)),  # 200
    ("model.language_model.layers.0.v_proj.weight", "BF16", (5, 10)),  # 50
    ("model.language_model.norm.weight", "BF16", (10,)),  # 10
    ("lm_head.weight", "BF16", (30, 10)),  # 300
]
"""960 parameters, 860 of them in the language model."""
FULL = {"bf16": True, "finetuning_type": "full"}
LORA = {"bf16": True, "finetuning_type": "lora", "lora_rank": 4, "lora_target": "all"}


@each(
    ("config", "stage", "wanted"),
    [
        # 960 x 2; DeepSpeed's copy of them, and 12 bytes for each of the 860 that learn
        (FULL, 1, (1920, 1920 + 860 * 12, 0)),
        (FULL, 2, (1920, 1920 + 860 * 12, 0)),
        (FULL, 3, (1920, 860 * 12, 0)),
        (FULL | {"freeze_vision_tower": False}, 3, (1920, 960 * 12, 0)),
        (FULL | {"freeze_vision_tower": False, "freeze_language_model": True}, 3, (1920, 100 * 12, 0)),
        # without DeepSpeed what learns is held in fp32, and so are its two moments
        (FULL, None, (860 * 4 + 100 * 2, 860 * 8, 0)),
        (FULL | {"pure_bf16": True}, None, (1920, 860 * 4, 0)),
        ({"finetuning_type": "full"}, None, (960 * 4, 860 * 8, 0)),
        (FULL | {"save_only_model": True}, 1, (1920, 0, 0)),
        # an adapter of q_proj and v_proj: 4 x (20 + 10) + 4 x (5 + 10) = 180; what it is merged into is stored in bf16
        (LORA, None, (180 * 4, 180 * 8, 1920)),
        (LORA, 2, (180 * 2, 180 * 2 + 180 * 12, 1920)),
        (LORA | {"lora_target": "q_proj"}, None, (120 * 4, 120 * 8, 1920)),
        # with the vision tower: 4 x (10 + 10) more
        (LORA | {"freeze_vision_tower": False}, None, (260 * 4, 260 * 8, 1920)),
    ],
)
def test_a_checkpoint(config, stage, wanted):
    assert footprint.estimate_sizes(MODEL, config, stage) == footprint.CheckpointSizes(*wanted)


@each(
    ("config", "carried", "wanted"),
    [
        # one checkpoint at the end, the weights once more beside it
        ({"save_steps": 999999, "save_total_limit": 1}, False, 110 + 10),
        ({"save_steps": 999999, "save_total_limit": 1}, True, 110 + 10 + 100),
        # a new one is written before the old one goes
        ({"save_steps": 10, "save_total_limit": 1}, False, 2 * 110 + 10),
        ({"save_steps": 10, "save_total_limit": 3}, False, 4 * 110 + 10),
        ({"save_steps": 20, "save_total_limit": 9}, False, 3 * 110 + 10),
        ({"save_steps": 10}, False, 5 * 110 + 10),
        ({"save_steps": 0.25}, False, 4 * 110 + 10),
        ({"save_strategy": "epoch", "num_train_epochs": 2, "save_total_limit": 5}, False, 2 * 110 + 10),
    ],
)
def test_the_peak_of_a_training_of_50_steps(config, carried, wanted):
    assert footprint.peak_bytes(footprint.CheckpointSizes(10, 100, 0), config, 50, carried=carried) == wanted


def test_an_adapter_is_merged_beside_its_checkpoint():
    sizes = footprint.CheckpointSizes(10, 100, 1000)
    assert footprint.peak_bytes(sizes, {"save_steps": 99}, 50, carried=False) == 110 + 10 + 1000


def model_of(folder, tensors):
    """A folder of weights whose headers say what they hold; nothing is behind them."""
    folder.mkdir()
    for number, (name, kind, shape) in enumerate(tensors):
        header = json.dumps({name: {"dtype": kind, "shape": shape, "data_offsets": [0, 0]}}).encode()
        (folder / f"model-{number}.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return folder


def test_measures_the_model_that_is_trained(tmp_path):
    model = model_of(tmp_path / "model", MODEL)
    config = FULL | {"model_name_or_path": str(model), "save_steps": 99, "save_total_limit": 1}

    def needed(config):
        tensors = footprint.model_tensors(config["model_name_or_path"])
        return footprint.needed_for_sft(tensors, config, 1, 50, carried=False)

    assert needed(config) == 1920 + (1920 + 860 * 12) + 1920
    assert needed(config | {"model_name_or_path": str(tmp_path / "none")}) is None
    (model / "model-0.safetensors").write_bytes(b"torn")
    assert needed(config) is None


@each(
    ("how", "wanted"),
    [
        ({}, 1920 + 860 * 12),
        ({"trainer": {"save_freq": 4}}, 1920 + 2 * 860 * 12),
        ({"trainer": {"save_freq": 8}}, 1920 + 860 * 12),
        ({"model": {"freeze_vision_tower": False}}, 1920 + 960 * 12),
        ({"model": {"lora_rank": 4}}, 1920 + 4 * (30 + 15) * 12),  # q_proj 20 + 10, v_proj 5 + 10
        ({"model": {"lora_rank": 4, "target_modules": "v_proj"}}, 1920 + 4 * 15 * 12),
    ],
)
def test_what_policy_gradients_take(how, wanted):
    rl = RlSettings.model_validate({"trainer": {"save_freq": 0}} | how).model_dump(exclude={"webrl"})
    assert footprint.needed_for_rl(MODEL, rl, 8, networks=1) == wanted
    assert footprint.needed_for_rl(MODEL, rl, 8, networks=2) == 2 * wanted
    assert footprint.needed_for_rl([], rl, 8, networks=1) is None


def test_a_model_of_the_hub_is_measured_in_its_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--owner--model"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots").mkdir()
    model_of(folder / "snapshots" / "abc", MODEL)
    assert footprint.model_tensors("owner/model") == MODEL
    assert footprint.model_tensors("owner/other") == footprint.model_tensors("Qwen/Qwen3-VL-8B-Instruct") == []


def test_refuses_with_what_it_needs_and_what_to_set(tmp_path, monkeypatch):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(footprint.shutil, "disk_usage", lambda path: usage(80_000_000_000))
    footprint.require_space(tmp_path / "not/there/yet", 80_000_000_000)
    with pytest.raises(StoreError, match=r"needs about 131\.2 GB of disk, 80 GB are free") as caught:
        footprint.require_space(tmp_path / "not/there/yet", 131_200_000_000)
    settings = ("train.keep_checkpoints", "train.keep_weights", "save_only_model", "rl.trainer.save_freq=0")
    assert all(name in caught.value.hint for name in (*settings, "train.check_disk_space=false"))


def test_the_size_of_a_folder(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_bytes(b"0" * 7)
    (tmp_path / "a/other").write_bytes(b"0" * 5)
    assert footprint.size_of(tmp_path / "a") == 12
    assert footprint.size_of(tmp_path / "none") == 0
