"""The trainer's settings: one JSON file, whose sections and names are those of the example that users know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from webgym_cli.train.rl.advantages import AdvantageOptions
from webgym_cli.train.rl.importance import ImportanceOptions
from webgym_cli.train.rl.kl import KlControl, KlType
from webgym_cli.train.rl.objectives import Aggregation, PolicyOptions


@dataclass(frozen=True, slots=True)
class Optim:
    """AdamW with a constant learning rate. Raises `ValueError` where a value makes no sense."""

    lr: float = 1e-6
    """Learning rate."""
    weight_decay: float = 0.01
    """Decoupled weight decay."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of the two moments."""
    eps: float = 1e-8
    """Added to the denominator."""
    lr_warmup_steps: int = 0
    """Optimizer steps in which the rate rises from 0."""

    def __post_init__(self) -> None:
        if self.lr <= 0 or self.weight_decay < 0 or self.lr_warmup_steps < 0:
            raise ValueError("lr must be above 0, weight_decay and lr_warmup_steps 0 or more")

    def rate(self, step: int) -> float:
        """Return the learning rate of an optimizer step, counted from 0."""
        return self.lr * min(1.0, (step + 1) / (self.lr_warmup_steps + 1))


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The policy's network."""

    path: str
    """Folder of a HuggingFace model, text or vision-language, or a name on the hub."""
    attn_implementation: Literal["auto", "flash_attention_2", "sdpa", "eager"] = "auto"
    """`auto`: flash attention where it is installed and there is a GPU, else `sdpa`."""
    use_remove_padding: bool = True
    """Pack sequences without padding. Off for models whose layers can't keep packed sequences apart."""
    enable_gradient_checkpointing: bool = True
    """Compute activations again in the backward pass rather than keep them."""
    freeze_vision_tower: bool = True
    """Train the language model only."""
    lora_rank: int = 0
    """Rank of the LoRA adapter that is trained; 0: all weights are trained."""
    lora_alpha: int = 16
    """The adapter counts lora_alpha / lora_rank times."""
    target_modules: str = "all-linear"
    """Layers that get an adapter: all linear ones but the output layer, or names with commas between."""

    def __post_init__(self) -> None:
        if self.lora_rank < 0 or self.lora_alpha < 1:
            raise ValueError("lora_rank must be 0 or more and lora_alpha 1 or more")


@dataclass(frozen=True, slots=True)
class AlgorithmOptions(AdvantageOptions):
    """Advantages, and the KL in the reward."""

    use_kl_in_reward: bool = False
    """Take the distance from the reference off each token's reward."""
    kl_penalty: KlType = "kl"
    """Its estimate."""
    kl_ctrl: KlControl = field(default_factory=KlControl)
    """Its coefficient."""
    rollout_correction: ImportanceOptions = field(default_factory=ImportanceOptions)
    """How data of other weights, or of the server's arithmetic, is corrected."""


@dataclass(frozen=True, slots=True)
class ActorOptions(PolicyOptions):
    """The policy's update. Raises `ValueError` where a value makes no sense."""

    optim: Optim = field(default_factory=Optim)
    """Its optimizer."""
    grad_clip: float = 1.0
    """Longest gradient."""
    ppo_epochs: int = 1
    """Times that a batch is worked through."""
    ppo_mini_batch_size: int | None = None
    """Trajectories an optimizer step; None: the whole batch makes one."""
    ppo_max_token_len_per_gpu: int = 16384
    """Tokens that go through the model at once, in each process; no sequence may be longer."""
    ppo_micro_batch_size_per_gpu: int | None = None
    """Most sequences at once; None: as many as the tokens allow."""
    shuffle: bool = True
    """Draw the mini-batches at random, rather than in the order of the trajectories."""
    recompute_old_log_probs: bool = True
    """Compute the log-probs that the ratio compares with, rather than take the sampler's."""
    logprob_chunk: int = 1024
    """Tokens whose logits exist at once."""

    def __post_init__(self) -> None:
        PolicyOptions.__post_init__(self)  # super() doesn't work in classes with slots
        for name in ("ppo_epochs", "ppo_max_token_len_per_gpu", "logprob_chunk"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more")
        for name in ("ppo_mini_batch_size", "ppo_micro_batch_size_per_gpu"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, or null")
        if self.grad_clip <= 0:
            raise ValueError("grad_clip must be above 0")


@dataclass(frozen=True, slots=True)
class RefOptions:
    """The reference policy."""

    path: str | None = None
    """Its model; None: the weights that this training starts from, with LoRA those without the adapter."""


@dataclass(frozen=True, slots=True)
class CriticOptions:
    """The critic of `gae`."""

    path: str | None = None
    """Its model, a critic that was saved before or a policy; None: the policy's."""
    optim: Optim = field(default_factory=lambda: Optim(lr=1e-5))
    """Its optimizer."""
    grad_clip: float = 1.0
    """Longest gradient."""
    cliprange_value: float = 0.5
    """How far a value may move in an update."""
    loss_agg_mode: Aggregation = "token-mean"
    """How the tokens' losses become one number."""

    def __post_init__(self) -> None:
        if self.grad_clip <= 0 or self.cliprange_value <= 0:
            raise ValueError("grad_clip and cliprange_value must be above 0")
        if self.loss_agg_mode == "seq-mean-token-sum-norm":
            raise ValueError("loss_agg_mode=seq-mean-token-sum-norm is for the policy")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The training as a whole."""

    output_dir: str
    """Where log, states and the finished model go."""
    save_freq: int = 1
    """Optimizer steps between two states to go on from; 0: none before the end."""
    critic_warmup: int = 0
    """The first iterations, in which only the critic learns."""
    seed: int = 0
    """Decides how the mini-batches are drawn, and what a new adapter begins with."""
    bf16: bool | None = None
    """Compute in bfloat16; the optimizer's weights stay float32. None: on a GPU."""
    deepspeed: str | None = None
    """A DeepSpeed configuration; values that are "auto" follow these settings. None: plain torch."""
    carry_state: str | None = None
    """`checkpoint-N/rl_state` of the training before: its exact weights and moments are taken over."""

    def __post_init__(self) -> None:
        if self.save_freq < 0 or self.critic_warmup < 0:
            raise ValueError("save_freq and critic_warmup must be 0 or more")


@dataclass(frozen=True, slots=True)
class TrainerOptions:
    """The whole file."""

    data: str
    """Folder of the batch: `rows.jsonl`, `trajectories.jsonl`, `rl.json`."""
    model: ModelOptions
    trainer: RunOptions
    algorithm: AlgorithmOptions = field(default_factory=AlgorithmOptions)
    actor: ActorOptions = field(default_factory=ActorOptions)
    ref: RefOptions = field(default_factory=RefOptions)
    critic: CriticOptions = field(default_factory=CriticOptions)

    @property
    def needs_reference(self) -> bool:
        """Whether the distance from a reference counts."""
        return self.actor.use_kl_loss or self.algorithm.use_kl_in_reward

    @property
    def needs_critic(self) -> bool:
        """Whether a critic is trained."""
        return self.algorithm.adv_estimator == "gae"
