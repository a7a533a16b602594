"""Success probabilities of states (prompts) by the critic of an actor-critic training.

    python -m webgym_cli.trainer.webrl.critic_inference CRITIC MODEL STATES VALUES

CRITIC is the critic's folder; MODEL is the policy as JSON, with the fields of the trainer's `model` and its `bf16`.
STATES is JSON Lines with `ids`, the paths of the `images`, and their `sizes`. VALUES becomes JSON Lines: an array of
probabilities, one per head.
Exit status: 0 on success; 1, with one line on stderr, on failure.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from webgym_cli.trainer.data import Picture
from webgym_cli.trainer.model.critics import OutcomeCritic, load_head
from webgym_cli.trainer.model.inputs import Collator
from webgym_cli.trainer.model.model import attention_implementation, image_processor, load_network
from webgym_cli.trainer.options import ModelConfig, TrainingError
from webgym_cli.trainer.webrl.webrl_batch import state_row, success_probability
from webgym_cli.util.optional import known_or


class CriticModel(ModelConfig):
    """The policy of a critic."""

    bf16: bool | None = None
    """Whether to compute in bfloat16 (`rl.trainer.bf16`); null: on CUDA only."""


def predict_success(folder: Path, policy: CriticModel, states: Sequence[dict[str, Any]]) -> Iterator[list[float]]:
    """Yield each state's success probabilities, one per critic head. Raises `TrainingError`."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if known_or(policy.bf16, device.type == "cuda") else torch.float32
    attention = attention_implementation(policy.model_copy(update={"use_remove_padding": False}), device)
    network = load_network(folder, attention, dtype, trusted=policy.trust_remote_code)
    critic = OutcomeCritic(network, _heads(folder))
    load_head(critic, folder)
    critic = critic.to(device).eval()
    processor = None
    if any(state["images"] for state in states):
        processor = image_processor(Path(policy.path), network, trusted=policy.trust_remote_code)
    collator = Collator(network.base_model, processor=processor, packed=False, attention=attention, dtype=dtype)
    with torch.inference_mode():
        for number, state in enumerate(states, 1):
            pairs = zip(state["images"], state["sizes"], strict=True)
            images = tuple(Picture(Path(path), (width, height)) for path, (width, height) in pairs)
            row = state_row(torch.tensor(state["ids"], dtype=torch.long), f"state {number}", images)
            logits = critic(collator([row]).to(device))
            yield [float(success_probability(head)[0]) for head in logits.unbind(1)]


def _heads(folder: Path) -> int:
    """Return the number of a critic's heads. Raises `TrainingError` unless it is an outcome critic."""
    from safetensors import SafetensorError, safe_open

    path = folder / f"{OutcomeCritic.HEAD}.safetensors"
    try:
        with safe_open(path, "pt") as file:
            return len({name.partition(".")[0] for name in file.keys()})  # noqa: SIM118  it is no mapping
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"{path}: can't be read: {error}") from error


def main(arguments: list[str]) -> int:
    """Score the states of the request file; return the exit status."""
    if len(arguments) != 4:
        sys.stderr.write("webgym: usage: critic_inference CRITIC MODEL STATES VALUES\n")
        return 1
    critic, states, values = map(Path, (arguments[0], *arguments[2:]))
    policy = CriticModel.model_validate_json(arguments[1])
    try:
        prompts = [json.loads(line) for line in states.read_text(encoding="utf-8").splitlines()]
        with values.open("w", encoding="utf-8", buffering=1) as file:  # by lines: each is progress
            for heads in predict_success(critic, policy, prompts):
                file.write(f"{json.dumps(heads)}\n")
    except (TrainingError, OSError) as error:
        sys.stderr.write(f"webgym: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
