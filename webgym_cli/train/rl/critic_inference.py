"""Success probabilities of states (prompts) by the critic of an actor-critic training.

    python launch.py webgym_cli.train.rl.critic_inference CRITIC STATES VALUES

CRITIC is the critic's folder; STATES has a JSON array of token ids a line, and VALUES gets one of probabilities, a head
each, a line. Exit status: 0 when all are told, 1 with one line on stderr when they can't be.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from webgym_cli.config.rl import RlModelSettings
from webgym_cli.train.rl.critics import OutcomeCritic, load_head
from webgym_cli.train.rl.data import TrainRow
from webgym_cli.train.rl.inputs import Collator
from webgym_cli.train.rl.model import attention_implementation, load_network
from webgym_cli.train.rl.options import TrainingError
from webgym_cli.train.rl.webrl_losses import success_probability


def predict_success(folder: Path, prompts: list[list[int]]) -> Iterator[list[float]]:
    """Yield the probability of success by each of the critic's heads, for each prompt. Raises `TrainingError`."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    attention = attention_implementation(RlModelSettings(use_remove_padding=False), device)
    network = load_network(folder, attention, dtype)
    critic = OutcomeCritic(network, _heads(folder))
    load_head(critic, folder)
    critic = critic.to(device).eval()
    collator = Collator(network.base_model, processor=None, packed=False, attention=attention, dtype=dtype)
    with torch.inference_mode():
        for number, prompt in enumerate(prompts):
            logits = critic(collator([_state(prompt, number)]).to(device))
            yield [float(success_probability(head)[0]) for head in logits.unbind(1)]


def _heads(folder: Path) -> int:
    """Return how many heads a critic has. Raises `TrainingError` where it is none that tells success."""
    from safetensors import SafetensorError, safe_open

    path = folder / f"{OutcomeCritic.HEAD}.safetensors"
    try:
        with safe_open(path, "pt") as file:
            return len({name.partition(".")[0] for name in file.keys()})  # noqa: SIM118  it is no mapping
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"{path}: can't be read: {error}") from error


def _state(prompt: list[int], number: int) -> TrainRow:
    """Return a prompt and one token more, before which the state is; nothing sees that token."""
    ids = torch.tensor([*prompt, prompt[-1]])
    mask = torch.zeros(len(ids), dtype=torch.bool)
    mask[-1] = True
    return TrainRow(
        ids, mask, torch.zeros(1), trajectory=number, step=0, images=(), sizes=(), place=f"state {number + 1}"
    )


def main(arguments: list[str]) -> int:
    """Score the states of the request file; return the exit status."""
    if len(arguments) != 3:
        sys.stderr.write("webgym: usage: launch.py webgym_cli.train.rl.critic_inference CRITIC STATES VALUES\n")
        return 1
    critic, states, values = map(Path, arguments)
    try:
        prompts = [json.loads(line) for line in states.read_text(encoding="utf-8").splitlines()]
        found = [f"{json.dumps(heads)}\n" for heads in predict_success(critic, prompts)]
        values.write_text("".join(found), encoding="utf-8")
    except (TrainingError, OSError) as error:
        sys.stderr.write(f"webgym: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
