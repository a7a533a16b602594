"""What the log-probabilities of our server are of, as its arguments tell."""

import json

import pytest

from webgym_cli.config.load import load
from webgym_cli.errors import SettingsError
from webgym_cli.serve.plan import logprobs_kind


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "processed"),
        (["--enforce-eager"], "processed"),
        (["--logprobs-mode", "raw_logprobs"], "raw"),
        (["--logprobs_mode=raw_logprobs"], "raw"),
        (["--logprobs-mode", "raw_logprobs", "--logprobs-mode=processed_logprobs"], "processed"),
    ],
    ids=str,
)
def test_the_last_argument_decides(arguments, text):
    assert logprobs_kind(load(overrides=[f"serve.extra_args={json.dumps(arguments)}"])) == text


@pytest.mark.parametrize("arguments", [["--logprobs-mode", "raw_logits"], ["--logprobs-mode=raw_logits"]], ids=str)
def test_logits_are_no_log_probabilities(arguments):
    with pytest.raises(SettingsError, match=r"serve\.extra_args: --logprobs-mode raw_logits gives no") as raised:
        logprobs_kind(load(overrides=[f"serve.extra_args={json.dumps(arguments)}"]))
    assert raised.value.hint
