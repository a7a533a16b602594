"""The critics: transformers with value heads, which are stored in a separate file beside the transformer's weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from webgym_cli.trainer.model.inputs import Inputs
from webgym_cli.trainer.model.model import hidden_states
from webgym_cli.trainer.options import TrainingError


class Critic(nn.Module):  # type: ignore[misc]
    """A value model: predicts the expected return before each trained token."""

    HEAD = "value_head"
    """Name of the head module, and of its file."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network.base_model
        self.value_head = nn.Linear(_width(network), 1, bias=False)
        nn.init.zeros_(self.value_head.weight)

    def forward(self, inputs: Inputs) -> torch.Tensor:
        """Return values [k] float32."""
        states = hidden_states(self.network, inputs)
        values = self.value_head(states.to(self.value_head.weight.dtype))
        return values[:, 0].float()


class OutcomeCritic(nn.Module):  # type: ignore[misc]
    """A binary classifier of failure and success, with independent heads of two hidden layers each."""

    HEAD = "outcome_heads"
    """See `Critic`."""

    def __init__(self, network: Any, heads: int) -> None:
        super().__init__()
        self.network = network.base_model
        width = _width(network)
        self.outcome_heads = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))
            for _ in range(heads)
        )

    def forward(self, inputs: Inputs) -> torch.Tensor:
        """Return logits [k, heads, 2] float32 of failure and success, before each marked token."""
        states = hidden_states(self.network, inputs)
        given = states.to(self.outcome_heads[0][0].weight.dtype)
        return torch.stack([head(given) for head in self.outcome_heads], 1).float()


def _width(network: Any) -> int:
    """Return the size of a model's hidden states."""
    return int(network.get_output_embeddings().weight.shape[1])


def save_head(module: Any, weights: dict[str, torch.Tensor], folder: Path) -> bool:
    """Write a critic's head from its named weights; return whether the network is a critic."""
    from safetensors.torch import save_file

    if not isinstance(module, Critic | OutcomeCritic):
        return False
    prefix = f"{module.HEAD}."
    own = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    save_file({name: value.contiguous() for name, value in own.items()}, folder / f"{module.HEAD}.safetensors")
    return True


def load_head(critic: Any, folder: Path) -> None:
    """Load the head stored beside a critic's weights; without a file it stays untrained. Raises `TrainingError`."""
    from safetensors.torch import load_file

    path = folder / f"{critic.HEAD}.safetensors"
    if not path.is_file():
        return
    head, weights = getattr(critic, critic.HEAD), load_file(path)
    if {name: value.shape for name, value in weights.items()} != {
        name: value.shape for name, value in head.state_dict().items()
    }:
        raise TrainingError(f"{path}: is of another kind of critic: set rl.webrl.heads as it was, or begin another run")
    head.load_state_dict(weights)
