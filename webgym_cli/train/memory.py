"""Estimates the GPU memory of a training without activations: weights, gradients, optimizer states, sharded by ZeRO."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Any

from webgym_cli.config.deepspeed import is_offloaded, zero_stage
from webgym_cli.store.weights import Tensor
from webgym_cli.train.disk import measure, rl_layout
from webgym_cli.util.optional import when

# Bytes per trained parameter for AdamW's two moments in fp32.
_ADAM = 8
# Bytes per trained parameter for the fp32 master copy of mixed precision.
_MASTER = 4


@dataclass(frozen=True, slots=True)
class TrainingMemory:
    """Memory of a training without activations, in bytes by location."""

    weights: int
    """On each GPU: the weights, and a frozen reference's."""
    gradients: int
    """On each GPU."""
    optimizer: int
    """On each GPU: the moments and the fp32 copy of the weights."""
    host: int
    """Offloaded to CPU memory, on all nodes together."""

    @property
    def gpu(self) -> int:
        """Bytes on each GPU."""
        return self.weights + self.gradients + self.optimizer

    def __add__(self, other: TrainingMemory) -> TrainingMemory:
        """Return the memory of two networks that are trained in the same processes."""
        return TrainingMemory(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def to_json(self) -> dict[str, int]:
        """Return the figures as plain data."""
        return {
            "gpu_bytes": self.gpu,
            "weights": self.weights,
            "gradients": self.gradients,
            "optimizer": self.optimizer,
            "host_bytes": self.host,
        }


def network_memory(
    parameters: int, trained: int, deepspeed: dict[str, Any] | None, processes: int, *, reference: bool = False
) -> TrainingMemory:
    """Return the memory of one network in bf16 with AdamW.

    `trained` of the `parameters` are trained (an adapter's count on top of the frozen ones); `deepspeed`: its
    configuration, None for plain data parallelism; `reference`: a frozen copy of the network stays beside it.
    Source of the bytes: ZeRO (Rajbhandari et al. 2020), section 3.1.
    """
    copies = 1 + reference
    if deepspeed is None:
        # Plain torch keeps trained weights in fp32 and computes in bf16 by autocast, so there is no master copy.
        frozen = copies * parameters - trained
        return TrainingMemory(4 * trained + 2 * frozen, 4 * trained, _ADAM * trained, 0)
    stage = zero_stage(deepspeed)
    # Stage 1 divides the optimizer states among the processes, stage 2 the gradients too, stage 3 the weights too.
    shares = [processes if stage >= divides else 1 for divides in (1, 2, 3)]
    weights, gradients = 2 * parameters * copies // shares[2], 2 * trained // shares[1]
    states = (_ADAM + _MASTER) * trained
    host = 0
    if is_offloaded(deepspeed, "param"):
        weights, host = 0, host + 2 * parameters * copies
    if is_offloaded(deepspeed, "optimizer"):
        return TrainingMemory(weights, gradients, 0, host + states)
    return TrainingMemory(weights, gradients, states // shares[0], host)


def configured_memory(
    model: Iterable[Tensor],
    config: dict[str, Any],
    deepspeed: dict[str, Any] | None,
    processes: int,
    *,
    reference: bool = False,
) -> TrainingMemory:
    """Return the memory of a network's training by its trainer's configuration. `reference`: see `network_memory`."""
    parameters, trained, _ = measure(model, config)
    adapter = when(config.get("finetuning_type") == "lora", trained)
    return network_memory(parameters + adapter, trained, deepspeed, processes, reference=reference)


def rl_memory(
    model: Iterable[Tensor], config: dict[str, Any], deepspeed: dict[str, Any] | None, processes: int, *, critic: bool
) -> TrainingMemory:
    """Return the memory of our own trainer under its `launch.json`: policy, reference, and critic if it has one.

    The networks add up, because each keeps its states while another is trained.
    """
    network = (list(model), rl_layout(config), deepspeed, processes)
    compared = bool(config["actor"]["use_kl_loss"] or config["algorithm"]["use_kl_in_reward"] or "webrl" in config)
    # With LoRA the reference is the network with the adapter disabled, so there is no second copy.
    policy = configured_memory(*network, reference=compared and not config["model"]["lora_rank"])
    return policy + configured_memory(*network) if critic else policy
