"""How the critic of a checkpoint is asked, by an interpreter that answers with its arguments and its GPUs."""

from webgym_cli.config.load import load
from webgym_cli.train.policy_gradient import critic_scoring
from webgym_cli.train.policy_gradient.critic_scoring import CriticState, success_probabilities


async def test_a_critic_is_loaded_as_the_training_does(tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text("""#!/bin/sh\nprintf '[%s, "%s"]' "$4" "$CUDA_VISIBLE_DEVICES" > "$6"\n""")
    python.chmod(0o755)
    monkeypatch.setattr(critic_scoring, "role_python", lambda settings, role: python)
    given = ("policy_config.trust_remote_code=true", "rl.model.attn_implementation=eager", "rl.trainer.bf16=false")
    settings = load(overrides=[*given, "venvs.device=cuda", 'train.gpus=["2","3"]'])
    ((model, gpus),) = await success_probabilities(tmp_path, tmp_path, [CriticState([1])], settings, tmp_path / "log")
    assert model == settings.rl.model.model_dump() | {"path": str(tmp_path), "trust_remote_code": True, "bf16": False}
    assert (model["attn_implementation"], gpus) == ("eager", "2,3")
