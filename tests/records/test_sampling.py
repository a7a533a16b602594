import pytest
from pydantic import ValidationError

from tests.tables import each
from webgym_cli.records.sampling import Sampling


@each(
    ("changes", "untouched"),
    [
        ({}, True),
        ({"logprobs": "raw"}, True),
        ({"temperature": 0.7}, False),
        ({"temperature": 0}, False),
        ({"top_k": 2}, False),
        ({"top_p": 0.99}, False),
        ({"min_p": 0.1}, False),
    ],
)
def test_only_temperature_1_without_limits_is_the_models_own_distribution(changes, untouched):
    assert Sampling(**{"temperature": 1, **changes}).untouched is untouched


def test_at_temperature_0_nothing_is_sampled():
    assert Sampling(temperature=0, top_k=2).greedy
    assert not Sampling(temperature=1e-3).greedy


@each(
    "wrong", [{"temperature": -0.1}, {"top_k": -2}, {"top_p": 0}, {"top_p": 1.1}, {"min_p": -1}, {"logprobs": "logits"}]
)
def test_what_can_not_be_sampled_from_is_refused(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        Sampling(**{"temperature": 1, **wrong})
