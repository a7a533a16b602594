"""GPU memory of a training before activations: weights, gradients, optimizer states, divided as ZeRO divides them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from webgym_cli.train.disk import adapter_parameters, is_trained
from webgym_cli.train.model_shapes import Tensor

# Bytes a trained parameter for AdamW's two moments in fp32.
_ADAM = 8
# Bytes a trained parameter for the fp32 copy that mixed precision steps on.
_MASTER = 4


@dataclass(frozen=True, slots=True)
class TrainingMemory:
    """Bytes that a training holds before activations, by where they are."""

    weights: int
    """On each GPU: the weights, and a frozen reference's."""
    gradients: int
    """On each GPU."""
    optimizer: int
    """On each GPU: the moments and the fp32 copy of the weights."""
    host: int
    """On the CPU of all nodes together: what is offloaded."""

    @property
    def gpu(self) -> int:
        """Bytes on each GPU."""
        return self.weights + self.gradients + self.optimizer

    def __add__(self, other: TrainingMemory) -> TrainingMemory:
        """Return the memory of two networks that are trained beside each other."""
        return TrainingMemory(
            self.weights + other.weights,
            self.gradients + other.gradients,
            self.optimizer + other.optimizer,
            self.host + other.host,
        )

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
    """Return what one network of a training holds in bf16 with AdamW.

    `parameters` of which `trained` learn (an adapter's count on top of the frozen ones); `deepspeed`: its
    configuration, None for plain data parallelism; `reference`: a frozen copy of the network stays beside it.
    Source of the bytes: ZeRO (Rajbhandari et al. 2020), section 3.1.
    """
    copies = 2 if reference else 1
    if deepspeed is None:
        # Plain torch keeps what is trained in fp32 and computes in bf16, so there is no second copy to step on.
        frozen = parameters - trained + (parameters if reference else 0)
        return TrainingMemory(4 * trained + 2 * frozen, 4 * trained, _ADAM * trained, 0)
    zero = deepspeed.get("zero_optimization", {})
    stage = int(zero.get("stage", 0))
    weights = 2 * parameters * copies // (processes if stage == 3 else 1)
    gradients = 2 * trained // (processes if stage >= 2 else 1)
    states = (_ADAM + _MASTER) * trained
    host = 0
    if _is_offloaded(zero, "offload_param"):
        weights, host = 0, host + 2 * parameters * copies
    if _is_offloaded(zero, "offload_optimizer"):
        return TrainingMemory(weights, gradients, 0, host + states)
    return TrainingMemory(weights, gradients, states // (processes if stage >= 1 else 1), host)


def sft_memory(
    model: Iterable[Tensor], config: dict[str, Any], deepspeed: dict[str, Any] | None, processes: int
) -> TrainingMemory:
    """Return what LLaMA-Factory's training holds under its `train_config.yaml`."""
    return _of(list(model), config, deepspeed, processes, lora=config.get("finetuning_type") == "lora")


def rl_memory(
    model: Iterable[Tensor], config: dict[str, Any], deepspeed: dict[str, Any] | None, processes: int, *, critic: bool
) -> TrainingMemory:
    """Return what our own trainer holds under its `launch.json`: the policy, its reference, and a critic if it has one.

    The networks are counted together: while one learns the others keep their states.
    """
    rank, names = config["model"]["lora_rank"], config["model"]["target_modules"]
    layout = config["model"] | {"lora_target": "all" if names == "all-linear" else names}
    tensors = list(model)
    compared = bool(config["actor"]["use_kl_loss"] or config["algorithm"]["use_kl_in_reward"] or "webrl" in config)
    # An adapter's reference is the network with the adapter switched off, which needs no second copy.
    policy = _of(tensors, layout, deepspeed, processes, lora=bool(rank), reference=compared and not rank)
    return policy + _of(tensors, layout, deepspeed, processes, lora=bool(rank)) if critic else policy


def _of(
    model: list[Tensor],
    config: dict[str, Any],
    deepspeed: dict[str, Any] | None,
    processes: int,
    *,
    lora: bool,
    reference: bool = False,
) -> TrainingMemory:
    parameters = sum(math.prod(shape) for _, _, shape in model)
    if lora:
        adapter = adapter_parameters(model, config)
        return network_memory(parameters + adapter, adapter, deepspeed, processes, reference=reference)
    trained = sum(math.prod(shape) for name, _, shape in model if is_trained(name, config))
    return network_memory(parameters, trained, deepspeed, processes, reference=reference)


def _is_offloaded(zero: dict[str, Any], part: str) -> bool:
    return bool(zero.get(part, {}).get("device", "none") != "none")
