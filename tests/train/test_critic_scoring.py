"""How the critic of a checkpoint is asked, by an interpreter that answers with its last argument."""

import pytest

from webgym_cli.config.load import load
from webgym_cli.train.policy_gradient import critic_scoring
from webgym_cli.train.policy_gradient.critic_scoring import CriticState, success_probabilities


@pytest.mark.parametrize(("trusted", "option"), [("true", "--trust-remote-code"), ("false", "")])
async def test_a_critic_of_a_model_with_its_own_code_is_loaded_as_the_training_does(
    tmp_path, monkeypatch, trusted, option
):
    python = tmp_path / "python"
    python.write_text("""#!/bin/sh\necho "[\\"$7\\"]" > "$6"\n""")
    python.chmod(0o755)
    monkeypatch.setattr(critic_scoring, "role_python", lambda settings, role: python)
    settings = load(overrides=[f"policy_config.trust_remote_code={trusted}"])
    answers = await success_probabilities(tmp_path, tmp_path, [CriticState([1])], settings, tmp_path / "log")
    assert answers == [[option]]
