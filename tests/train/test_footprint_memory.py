"""GPU memory of a training, against figures computed by hand."""

import json
import math

import pytest

from benchmarks.model_shapes import published_tensors
from tests.tables import each
from webgym_cli.config.shipped import find_deepspeed_file
from webgym_cli.train.footprint import TrainingMemory, configured_memory, network_memory, rl_memory

BILLION = 10**9


def zero(name):
    return json.loads(find_deepspeed_file(f"ds_config_{name}.json").read_text())


@each(
    ("name", "gpu", "host"),
    [
        # 8 billion parameters on 8 GPUs: 2 bytes for weights and for gradients, 12 for the optimizer
        ("h100_zero1", 16 + 16 + 96 / 8, 0),
        ("h100_zero1_offload", 16 + 16, 96),
        ("h100_zero2", 16 + 2 + 12, 0),
        ("h100_zero2_offload", 16 + 2, 96),
        ("h100_zero3", (16 + 16 + 96) / 8, 0),
        ("h100_zero3_offload", 16 / 8, 96 + 16),
    ],
)
def test_zero_divides_what_it_says(name, gpu, host):
    memory = network_memory(8 * BILLION, 8 * BILLION, zero(name), 8)
    assert (memory.gpu, memory.host) == (gpu * BILLION, host * BILLION)


def test_without_deepspeed_each_gpu_has_everything_in_fp32():
    assert network_memory(BILLION, BILLION, None, 8) == TrainingMemory(4 * BILLION, 4 * BILLION, 8 * BILLION, 0)


def test_frozen_parameters_have_weights_only():
    memory = network_memory(8 * BILLION, 6 * BILLION, zero("h100_zero1"), 2)
    assert memory == TrainingMemory(16 * BILLION, 12 * BILLION, 36 * BILLION, 0)
    facts = {"gpu_bytes": 64, "weights": 16, "gradients": 12, "optimizer": 36, "host_bytes": 0}
    assert list(memory.to_json().items()) == [(name, count * BILLION) for name, count in facts.items()]


def test_a_reference_is_another_copy_of_the_weights():
    alone, compared = (network_memory(BILLION, BILLION, zero("h100_zero3"), 4, reference=of) for of in (False, True))
    assert compared.weights == 2 * alone.weights
    assert compared.gradients + compared.optimizer == alone.gradients + alone.optimizer


def test_supervised_training_leaves_the_vision_tower_frozen():
    model = published_tensors("Qwen/Qwen3-VL-8B-Instruct")
    memory = configured_memory(model, {"finetuning_type": "full"}, zero("h100_zero2"), 8)
    everything = sum(math.prod(shape) for _, _, shape in model)
    language = sum(math.prod(shape) for name, _, shape in model if "visual" not in name)
    assert (memory.weights, memory.gradients) == (2 * everything, 2 * language // 8)


def test_lora_trains_the_adapter_alone():
    model = published_tensors("Qwen/Qwen2.5-0.5B-Instruct")
    memory = configured_memory(model, {"finetuning_type": "lora", "lora_rank": 8, "lora_target": "q_proj"}, None, 1)
    adapter = 24 * 8 * (896 + 896)
    frozen = sum(math.prod(shape) for _, _, shape in model)
    assert memory == TrainingMemory(4 * adapter + 2 * frozen, 4 * adapter, 8 * adapter, 0)


@pytest.mark.parametrize(("kl", "copies", "learning"), [(False, 1, 1), (True, 2, 1), (True, 3, 2)])
def test_policy_gradients_hold_a_reference_and_a_critic_where_they_need_them(kl, copies, learning):
    model = published_tensors("Qwen/Qwen2.5-0.5B-Instruct")
    losses = {"actor": {"use_kl_loss": kl}, "algorithm": {"use_kl_in_reward": False}}
    config = {"model": {"lora_rank": 0, "target_modules": "all-linear"}, **losses}
    memory = rl_memory(model, config, zero("h100_zero1"), 1, critic=learning == 2)
    parameters = sum(math.prod(shape) for _, _, shape in model)
    assert memory == TrainingMemory(2 * parameters * copies, 2 * parameters * learning, 12 * parameters * learning, 0)
