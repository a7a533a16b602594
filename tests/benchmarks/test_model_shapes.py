"""The shapes of published models: their numbers of parameters, as the models' cards have them."""

import math

import pytest

from benchmarks.model_shapes import PUBLISHED, published_tensors
from tests.tables import each


def billions(model):
    return sum(math.prod(shape) for _, _, shape in published_tensors(model)) / 1e9


@each(
    ("model", "parameters"),
    [
        ("Qwen/Qwen2.5-0.5B-Instruct", 0.494),
        ("Qwen/Qwen2.5-1.5B-Instruct", 1.544),
        ("Qwen/Qwen2.5-3B-Instruct", 3.086),
        ("Qwen/Qwen2.5-7B-Instruct", 7.616),
        ("Qwen/Qwen3-VL-2B-Instruct", 2.128),
        ("Qwen/Qwen3-VL-4B-Instruct", 4.438),
        ("Qwen/Qwen3-VL-8B-Instruct", 8.767),
        ("meta-llama/Llama-3.1-8B-Instruct", 8.030),
    ],
)
def test_published_numbers_of_parameters(model, parameters):
    assert billions(model) == pytest.approx(parameters, abs=5e-4)


def test_every_published_model_is_checked_and_names_its_tensors_once():
    for model in PUBLISHED:
        names = [name for name, _, _ in published_tensors(model)]
        assert len(names) == len(set(names))


def test_a_thinking_variant_has_the_same_shapes_and_an_unknown_model_none():
    assert published_tensors("Qwen/Qwen3-VL-8B-Thinking") == published_tensors("Qwen/Qwen3-VL-8B-Instruct")
    assert published_tensors("somebody/unknown-7B") == []
