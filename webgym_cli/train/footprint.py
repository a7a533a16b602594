"""Disk usage and GPU memory of a training, estimated from the model's tensors; check of the free disk space.

Memory is that without activations: weights, gradients and optimizer states, sharded by ZeRO.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from webgym_cli.config.model_families import find_model_folder
from webgym_cli.config.shipped import is_offloaded, zero_stage
from webgym_cli.errors import StoreError
from webgym_cli.records.training_files import VISION
from webgym_cli.store.weights import Tensor, list_tensors
from webgym_cli.util.optional import when

# Bytes per element, by safetensors dtype.
BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4, "I8": 1, "U8": 1}
# Name fragments of matrices that `lora_target: all` skips.
NO_ADAPTER = ("embed", "lm_head")
GB = 10**9
# Bytes per trained parameter for AdamW's two moments in fp32.
_ADAM = 8
# Bytes per trained parameter for the fp32 master copy of mixed precision.
_MASTER = 4


@dataclass(frozen=True, slots=True)
class CheckpointSizes:
    """Sizes of the parts of a training's checkpoint, in bytes."""

    weights: int
    """The weights that the trainer writes: the whole model, or the adapter."""
    states: int
    """The optimizer's states, with DeepSpeed's own copy of the weights."""
    merged: int
    """The whole model into which an adapter is merged; 0 without one."""


def estimate_sizes(model: Iterable[Tensor], config: dict[str, Any], stage: int | None) -> CheckpointSizes:
    """Estimate the checkpoint sizes under a training's configuration.

    AdamW keeps two moments per trained parameter, in its dtype; DeepSpeed keeps both and a copy of the parameter in
    fp32. Without DeepSpeed the trained parameters are held, and saved, in fp32 even with bf16 autocast.
    """
    (parameters, trained, stored), lora = measure(model, config), config.get("finetuning_type") == "lora"
    half = bool(config.get("bf16") or config.get("fp16") or config.get("pure_bf16"))
    precise = 2 if half and (stage is not None or config.get("pure_bf16")) else 4
    frozen = when(not lora, parameters - trained)
    weights = trained * precise + frozen * (2 if half else 4)
    copied = when(stage not in (None, 3), weights)
    states = copied + trained * (2 * precise if stage is None else 12)
    return CheckpointSizes(weights, when(not config.get("save_only_model"), states), when(lora, stored))


def peak_bytes(sizes: CheckpointSizes, config: dict[str, Any], steps: int, *, carried: bool) -> int:
    """Return the peak disk usage of a training in bytes, including the published policy.

    The trainer removes an old checkpoint only after a new one is written, and writes the weights once more at its end.
    Carried states are rewritten for the start.
    """
    if config.get("save_strategy") == "epoch":
        written = math.ceil(float(config.get("num_train_epochs") or 3))
    else:
        every = float(config.get("save_steps") or 500)  # below 1: a fraction of the steps
        written = math.ceil(steps / every if every >= 1 else 1 / every)
    limit = config.get("save_total_limit")
    copies = written if limit is None else min(written, int(limit) + 1)
    once = sizes.weights + sizes.merged + (when(carried, sizes.states))
    return max(1, copies) * (sizes.weights + sizes.states) + once


def needed_for_sft(
    model: list[Tensor], config: dict[str, Any], stage: int | None, steps: int, *, carried: bool
) -> int | None:
    """Return the bytes that LLaMA-Factory's training will need, or None if the model's shapes are unknown."""
    if not model:
        return None
    return peak_bytes(estimate_sizes(model, config, stage), config, steps, carried=carried)


def needed_for_rl(model: list[Tensor], config: dict[str, Any], steps: int, *, networks: int) -> int | None:
    """Return the bytes that our own trainer will need, or None if the model's shapes are unknown.

    A state holds the trained parameters in fp32 with Adam's two moments, for policy and critic; two states exist while
    one replaces the other. The critic's model is written beside the policy's.
    """
    if not model:
        return None
    _, trained, stored = measure(model, rl_layout(config))
    states: int = 1 + (0 < config["trainer"]["save_freq"] < steps)
    return networks * (states * trained * 12 + stored)


def model_tensors(model: str) -> list[Tensor]:
    """Return the tensors of a model's files; none without local ones."""
    folder = find_model_folder(model)
    try:
        return list(list_tensors(folder) if folder else ())
    except (OSError, ValueError, KeyError, TypeError):  # the trainer will report damaged files
        return []


def require_space(place: Path, wanted: int) -> None:
    """Raise `StoreError` if fewer than `wanted` bytes are free on the file system of a folder, existing or not."""
    existing = next(path for path in (place, *place.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < wanted:
        raise StoreError(
            f"{place}: the training needs about {wanted / GB:.4g} GB of disk, {free / GB:.4g} GB are free",
            hint="free disk space, keep less (-s train.keep_checkpoints=1 -s train.keep_weights=1) or write less "
            "(-s algorithm_config.save_only_model=true for imitation, else -s rl.trainer.save_freq=0); "
            "-s train.check_disk_space=false starts it all the same",
        )


def size_of(folder: Path) -> int:
    """Return the size of all files in a folder in bytes; 0 if it does not exist."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(model: Iterable[Tensor], config: dict[str, Any]) -> tuple[int, int, int]:
    """Return a model's parameter count, its trained parameters, and its bytes, under LLaMA-Factory's settings.

    A LoRA adapter adds rank x (inputs + outputs) trained parameters for each adapted matrix.
    """
    tensors = list(model)
    learning = [(name, shape) for name, _, shape in tensors if is_trained(name, config)]
    trained = sum(math.prod(shape) for _, shape in learning)
    if config.get("finetuning_type") == "lora":
        adapted = (shape for name, shape in learning if len(shape) == 2 and _is_adapted(name, config))
        trained = int(config.get("lora_rank") or 8) * sum(map(sum, adapted))
    stored = sum(math.prod(shape) * BYTES.get(kind, 4) for _, kind, shape in tensors)
    return sum(math.prod(shape) for _, _, shape in tensors), trained, stored


def rl_layout(config: dict[str, Any]) -> dict[str, Any]:
    """Translate our own trainer's `launch.json` into LLaMA-Factory's settings of the trained parameters."""
    names, kind = config["model"]["target_modules"], "lora" if config["model"]["lora_rank"] else "full"
    return {**config["model"], "finetuning_type": kind, "lora_target": "all" if names == "all-linear" else names}


def is_trained(name: str, config: dict[str, Any]) -> bool:
    """Return whether a parameter is fully trained. The projector counts as trained unless the tower is frozen too."""
    if any(part in name for part in VISION):
        return not (config.get("freeze_vision_tower", True) and config.get("freeze_multi_modal_projector", True))
    return not config.get("freeze_language_model", False)


def _is_adapted(name: str, config: dict[str, Any]) -> bool:
    target = str(config.get("lora_target") or "all")
    if target == "all":
        return not any(part in name for part in NO_ADAPTER)
    return any(part.strip() in name for part in target.split(","))


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
