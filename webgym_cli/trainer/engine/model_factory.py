"""Builds the networks, engines and collators of a training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import webgym_cli.trainer.model.critics as critics
import webgym_cli.trainer.model.model as model
from webgym_cli.config.rl import AnyOptimSettings
from webgym_cli.trainer.data import Batch
from webgym_cli.trainer.engine.distributed import DistributedContext
from webgym_cli.trainer.engine.engine import (
    DeepSpeedEngine,
    PlainEngine,
    ReferenceEngine,
    TrainEngine,
    deepspeed_config,
)
from webgym_cli.trainer.model.inputs import Collator
from webgym_cli.trainer.options import TrainerOptions
from webgym_cli.util.optional import map_known


@dataclass(frozen=True, slots=True)
class ModelFactory:
    """Builds the networks, engines and collators of one training."""

    options: TrainerOptions
    world: DistributedContext
    batch: Batch

    @property
    def bf16(self) -> bool:
        """Whether to compute in bfloat16: the setting, else on CUDA only."""
        wanted = self.options.trainer.bf16
        return self.world.device.type == "cuda" if wanted is None else wanted

    @property
    def attention(self) -> str:
        """The attention implementation."""
        return model.attention_implementation(self.options.model, self.world.device)

    def actor(self, folder: Path) -> TrainEngine:
        """Return the engine of the trained policy."""
        network = self._load(folder, self._held)
        model.configure_training(network, self.options.model)
        if self.options.model.adapter is not None:
            model.load_adapter(network, Path(self.options.model.adapter))
        return self._engine(self._policy(network), self.options.actor.optim, self.options.actor.grad_clip)

    def critic(self, folder: Path) -> TrainEngine:
        """Return the engine of the trained critic."""
        network = self._load(folder, self._held)
        model.configure_training(network, self.options.model)
        options = self.options.webrl
        if options is None:
            critic: Any = critics.Critic(network)
        else:
            critic = critics.OutcomeCritic(network, options.heads)
        critics.load_head(critic, folder)
        return self._engine(critic, self.options.critic.optim, self.options.critic.grad_clip)

    def reference(self, folder: Path) -> ReferenceEngine:
        """Return the engine of a frozen policy."""
        kind = torch.bfloat16 if self.bf16 else torch.float32
        policy = self._policy(self._load(folder, kind).requires_grad_(False))
        return ReferenceEngine(
            policy.eval(), self.world, self._deepspeed(self.options.actor.optim, 1.0), bf16=self.bf16
        )

    def _load(self, folder: Path, kind: torch.dtype) -> Any:
        network = model.load_network(folder, self.attention, kind, trusted=self.options.model.trust_remote_code)
        model.refuse_unfit(network, self.options.model)
        return network

    def collator(self, folder: Path, network: Any) -> Collator:
        """Return the collator for a network."""
        return Collator(
            transformer=network.base_model,
            processor=model.image_processor(folder, network, trusted=self.options.model.trust_remote_code),
            packed=self.options.model.use_remove_padding,
            attention=self.attention,
            dtype=torch.bfloat16 if self.bf16 else torch.float32,
            together=self.world.size > 1,
        )

    @property
    def _held(self) -> torch.dtype:
        """Initial dtype of the weights: DeepSpeed keeps a float32 copy beside bfloat16 weights."""
        return torch.bfloat16 if self.bf16 and self.options.trainer.deepspeed else torch.float32

    def _policy(self, network: Any) -> model.PolicyModel:
        return model.PolicyModel(network, sampling=self.batch.sampling, chunk=self.options.model.logprob_chunk)

    def _engine(self, module: Any, optim: AnyOptimSettings, grad_clip: float) -> TrainEngine:
        config = self._deepspeed(optim, grad_clip)
        if config is not None:
            return DeepSpeedEngine(module, self.world, optim, config)
        return PlainEngine(module, self.world, optim, grad_clip, bf16=self.bf16)

    def _deepspeed(self, optim: AnyOptimSettings, grad_clip: float) -> dict[str, Any] | None:
        return map_known(
            lambda path: deepspeed_config(Path(path), optim, grad_clip, bf16=self.bf16), self.options.trainer.deepspeed
        )
