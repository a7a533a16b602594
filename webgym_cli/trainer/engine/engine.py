"""Training engines with one interface: plain torch, or DeepSpeed with ZeRO and offload."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from webgym_cli.config.rl import AnyOptimSettings
from webgym_cli.config.shipped import is_offloaded, zero_stage
from webgym_cli.trainer.engine.distributed import DistributedContext
from webgym_cli.trainer.model.inputs import Inputs
from webgym_cli.trainer.options import TrainingError, read_object

STATES = "states.pt"
TAG = "engine"


class PlainEngine:
    """torch's AdamW on float32 weights, replicated in every process. `module` is the network."""

    def __init__(
        self, module: Any, world: DistributedContext, optim: AnyOptimSettings, grad_clip: float, *, bf16: bool
    ) -> None:
        self.module = module.to(world.device)
        self._world, self._optim, self._grad_clip, self._bf16 = world, optim, grad_clip, bf16
        self._trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
        self._optimizer = torch.optim.AdamW(self._trained.values(), **adamw_options(optim, optim.lr))

    def call(self, inputs: Inputs) -> Any:
        """Run the forward pass."""
        with autocast(self._world, bf16=self._bf16):
            return self.module(inputs.to(self._world.device))

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        """Add this process's share of a mini-batch's loss to the gradients. `last`: `step` follows."""
        loss.backward()

    @property
    def rate(self) -> float:
        """Learning rate of the next optimizer step; a warm-up counts the steps of the carried states, too."""
        return self._optim.rate(max((int(state["step"]) for state in self._optimizer.state.values()), default=0))

    def step(self) -> float:
        """Make an optimizer step, unless a gradient isn't finite; return the gradient norm before clipping."""
        if self._world.size > 1:
            for parameter in self._trained.values():
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                distributed.all_reduce(parameter.grad)
        norm = float(torch.nn.utils.clip_grad_norm_(self._trained.values(), self._grad_clip))
        for group in self._optimizer.param_groups:
            group |= adamw_options(self._optim, self.rate)
        if math.isfinite(norm):
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return norm

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the name and full value, on the CPU, of every parameter; empty tensors except on the main process."""
        for name, value in self.module.named_parameters():
            yield name, value.detach().cpu() if self._world.is_main_process else torch.empty(0)

    def save(self, folder: Path) -> None:
        """Write trained weights and optimizer states into an existing folder; the main process does."""
        if self._world.is_main_process:
            weights = {name: value.detach() for name, value in self._trained.items()}
            torch.save({"weights": weights, "optimizer": self._optimizer.state_dict()}, folder / STATES)

    def load(self, folder: Path) -> None:
        """Load the state that `save` wrote. Raises `TrainingError` if it is missing, or of other weights."""
        path = folder / STATES
        if not path.is_file():
            raise TrainingError(f"{path}: is missing: the states there are of another kind of training")
        state = torch.load(path, map_location="cpu", weights_only=True)
        if {name: value.shape for name, value in state["weights"].items()} != {
            name: value.shape for name, value in self._trained.items()
        }:
            raise TrainingError(
                f"{path}: holds other weights than those that are trained now: -s train.keep_optimizer_state=false "
                "starts with a new optimizer"
            )
        with torch.no_grad():
            for name, value in state["weights"].items():
                self._trained[name].copy_(value)
        self._optimizer.load_state_dict(state["optimizer"])


class DeepSpeedEngine:
    """ZeRO 1 to 3, on GPUs or CPU, with offload if the configuration says so. `module` is the network."""

    def __init__(self, module: Any, world: DistributedContext, optim: AnyOptimSettings, config: dict[str, Any]) -> None:
        import deepspeed

        trained = [value for value in module.parameters() if value.requires_grad]
        self._engine = deepspeed.initialize(model=module, model_parameters=trained, config=config)[0]
        self.module, self._world, self._optim, self._stage = module, world, optim, zero_stage(config)

    def call(self, inputs: Inputs) -> Any:
        """Run the forward pass."""
        return self._engine(inputs.to(self._world.device))

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        """Add this process's share of a mini-batch's loss to the gradients. `last`: `step` follows."""
        self._engine.set_gradient_accumulation_boundary(last)
        self._engine.backward(loss * self._world.size)  # DeepSpeed averages over the processes; the loss terms are sums

    @property
    def rate(self) -> float:
        """Learning rate of the next optimizer step; a warm-up counts the steps of the carried states, too."""
        return self._optim.rate(self._engine.global_steps)

    def step(self) -> float:
        """Make an optimizer step; return the gradient norm before clipping, NaN if DeepSpeed has none."""
        for group in self._engine.optimizer.param_groups:
            group |= adamw_options(self._optim, self.rate)
        self._engine.step()
        norm = self._engine.get_global_grad_norm()
        return math.nan if norm is None else float(norm)

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the name and full value, on the CPU, of every parameter; empty tensors except on the main process."""
        import deepspeed

        for name, value in self.module.named_parameters():
            with deepspeed.zero.GatheredParameters([value]) if self._stage == 3 else nullcontext():
                whole = value.detach().cpu().clone() if self._world.is_main_process else torch.empty(0)
            yield name, whole

    def save(self, folder: Path) -> None:
        """Write weights and optimizer states into an existing folder, each process its shard."""
        self._engine.save_checkpoint(str(folder), tag=TAG, exclude_frozen_parameters=self._stage < 3)

    def load(self, folder: Path) -> None:
        """Load the state that `save` wrote. Raises `TrainingError` if it is of another number of processes."""
        shards = list((folder / TAG).glob("*_optim_states.pt"))
        if len(shards) != self._world.size:
            raise TrainingError(f"{folder}: states of {len(shards)} processes, {self._world.size} are to go on")
        self._engine.load_checkpoint(str(folder), tag=TAG, load_module_strict=False)


# A trained network with its optimizer. All processes must call all methods, in the same order.
TrainEngine = PlainEngine | DeepSpeedEngine


class ReferenceEngine:
    """An inference-only engine for the reference. ZeRO-3 shards it among the processes like the policy."""

    def __init__(self, module: Any, world: DistributedContext, config: dict[str, Any] | None, *, bf16: bool) -> None:
        self.module, self._world, self._bf16 = module, world, bf16
        if config is None or zero_stage(config) < 3:
            self._engine = module.to(world.device)
            return
        import deepspeed

        given = {name: value for name, value in config.items() if name != "optimizer"}
        zero = {name: value for name, value in config["zero_optimization"].items() if name != "offload_optimizer"}
        self._engine = deepspeed.initialize(model=module, config=given | {"zero_optimization": zero})[0]

    def call(self, inputs: Inputs) -> Any:
        """Return what the network makes of inputs."""
        with autocast(self._world, bf16=self._bf16):
            return self._engine(inputs.to(self._world.device))


def adamw_options(optim: AnyOptimSettings, rate: float) -> dict[str, Any]:
    """Return AdamW's options, set before each step: loaded states bring those that they were saved with."""
    return {"lr": rate, "betas": optim.betas, "eps": optim.eps, "weight_decay": optim.weight_decay}


def autocast(world: DistributedContext, *, bf16: bool) -> Any:
    """Return a context for bfloat16 autocast; without `bf16`, one in which the weights' dtype is used."""
    return torch.autocast(world.device.type, torch.bfloat16, enabled=bf16)


def deepspeed_config(path: Path, optim: AnyOptimSettings, grad_clip: float, *, bf16: bool) -> dict[str, Any]:
    """Return a DeepSpeed configuration for these settings. Raises `TrainingError` for an invalid file.

    "auto" values follow the settings, or DeepSpeed's defaults. One call is one micro-batch; the trainer marks the last
    one before an optimizer step.
    """
    config: dict[str, Any] = _without_auto(read_object(path))
    config.pop("train_batch_size", None)
    config.pop("scheduler", None)
    config |= {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}
    config |= {"gradient_clipping": grad_clip, "bf16": {"enabled": bf16}, "fp16": {"enabled": False}}
    if not bf16:
        config.pop("communication_data_type", None)
    zero = config.get("zero_optimization", {})
    if not isinstance(zero, dict) or zero.get("stage", 0) not in (1, 2, 3):
        raise TrainingError(f"{path}: zero_optimization.stage must be 1, 2 or 3: {json.dumps(zero)[:200]}")
    values = adamw_options(optim, optim.lr) | {"betas": list(optim.betas)}
    # torch's own needs no compiler; on the CPU, DeepSpeed's is many times faster
    config["optimizer"] = {
        "type": "AdamW",
        "params": values if is_offloaded(config, "optimizer") else values | {"torch_adam": True},
    }
    return config


def _without_auto(value: Any) -> Any:
    """Return the configuration without its "auto" values."""
    if not isinstance(value, dict):
        return value
    return {name: _without_auto(entry) for name, entry in value.items() if entry != "auto"}
