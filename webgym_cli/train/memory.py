"""GPU memory of a training before activations: weights, gradients, optimizer states, divided as ZeRO divides them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Any

from webgym_cli.train.disk import measure, rl_layout
from webgym_cli.train.model_shapes import Tensor
from webgym_cli.train.rl.layout import is_offloaded, zero_stage

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
    stage = zero_stage(deepspeed)
    weights = 2 * parameters * copies // (processes if stage == 3 else 1)
    gradients = 2 * trained // (processes if stage >= 2 else 1)
    states = (_ADAM + _MASTER) * trained
    host = 0
    if is_offloaded(deepspeed, "param"):
        weights, host = 0, host + 2 * parameters * copies
    if is_offloaded(deepspeed, "optimizer"):
        return TrainingMemory(weights, gradients, 0, host + states)
    return TrainingMemory(weights, gradients, states // (processes if stage >= 1 else 1), host)


def sft_memory(
    model: Iterable[Tensor], config: dict[str, Any], deepspeed: dict[str, Any] | None, processes: int
) -> TrainingMemory:
    """Return what LLaMA-Factory's training holds under its `train_config.yaml`."""
    return _of(model, config, deepspeed, processes)


def rl_memory(
    model: Iterable[Tensor], config: dict[str, Any], deepspeed: dict[str, Any] | None, processes: int, *, critic: bool
) -> TrainingMemory:
    """Return what our own trainer holds under its `launch.json`: the policy, its reference, and a critic if it has one.

    The networks are counted together: while one learns the others keep their states.
    """
    network = (list(model), rl_layout(config), deepspeed, processes)
    compared = bool(config["actor"]["use_kl_loss"] or config["algorithm"]["use_kl_in_reward"] or "webrl" in config)
    # An adapter's reference is the network with the adapter switched off, which needs no second copy.
    policy = _of(*network, reference=compared and not config["model"]["lora_rank"])
    return policy + _of(*network) if critic else policy


def _of(
    model: Iterable[Tensor],
    config: dict[str, Any],
    deepspeed: dict[str, Any] | None,
    processes: int,
    *,
    reference: bool = False,
) -> TrainingMemory:
    parameters, trained, _ = measure(model, config)
    adapter = trained if config.get("finetuning_type") == "lora" else 0
    return network_memory(parameters + adapter, trained, deepspeed, processes, reference=reference)
