"""Settings of policy-gradient training. The text under a field is its help.

Their names are those of the example that users know. The trainer reads the same classes in the train role's
interpreter (`trainer/options.py`), which has pydantic and nothing else that webgym needs.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from webgym_cli.config.rl_data import ReplaySettings, RlDataSettings
from webgym_cli.config.section import ConfigSection
from webgym_cli.util.optional import known_or

# Estimators of the KL divergence from the reference policy.
KlType = Literal["kl", "abs", "mse", "low_var_kl"]
Aggregation = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]
# The policy's loss, by its name in verl.
LossMode = Literal["vanilla", "gspo", "cispo"]


class RlModelSettings(ConfigSection):
    """The policy network."""

    attn_implementation: Literal["auto", "flash_attention_2", "sdpa", "eager"] = "auto"
    """Attention implementation. `auto`: flash attention if it is installed and a GPU is present, else `sdpa`, one
    sequence at a time when packed."""
    use_remove_padding: bool = True
    """Pack sequences without padding. Turn it off for models whose layers mix packed sequences, such as Qwen3.5's."""
    enable_gradient_checkpointing: bool = True
    """Recompute activations in the backward pass: less memory, more time."""
    freeze_vision_tower: bool = True
    """Freeze the vision tower and train the language model only."""
    lora_rank: int = Field(default=0, ge=0)
    """Rank of the LoRA adapter; 0: all weights are trained."""
    lora_alpha: int = Field(default=16, ge=1)
    """LoRA scale: the adapter's output is multiplied by lora_alpha / lora_rank."""
    target_modules: str = "all-linear"
    """Layers with an adapter: `all-linear` (all linear layers except the output layer), or comma-separated names."""


class AdamWSettings(ConfigSection):
    """AdamW with a constant learning rate."""

    lr: float = Field(default=1e-6, gt=0)
    """Learning rate after the warm-up."""
    weight_decay: float = Field(default=0.01, ge=0)
    """AdamW's decoupled weight decay coefficient."""
    eps: float = Field(default=1e-8, ge=0)
    """AdamW's epsilon, added to the denominator."""


class OptimSettings(AdamWSettings):
    """The actor's optimizer."""

    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    """AdamW's decay rates of the first and second moment."""
    lr_warmup_steps: int = Field(default=0, ge=0)
    """Number of optimizer steps of the linear warm-up from 0, over all trainings that carry over the optimizer
    state. (verl counts trainings.)"""

    def rate(self, step: int) -> float:
        """Return the learning rate of an optimizer step, counted from 0."""
        return self.lr * min(1.0, (step + 1) / (self.lr_warmup_steps + 1))


class CriticOptimSettings(AdamWSettings):
    """The critic's optimizer, with torch's betas and without a warm-up."""

    @property
    def betas(self) -> tuple[float, float]:
        """Return AdamW's decay rates of the first and second moment."""
        return (0.9, 0.999)

    def rate(self, step: int) -> float:
        """Return the learning rate of an optimizer step."""
        return self.lr


AnyOptimSettings = OptimSettings | CriticOptimSettings


class KlControlSettings(ConfigSection):
    """The coefficient of the KL penalty in the reward, fixed or adaptive."""

    type: Literal["fixed", "adaptive"] = "fixed"
    """`fixed`: constant; `adaptive`: updated after each batch towards `target_kl`."""
    kl_coef: float = Field(default=0.001, ge=0)
    """Initial coefficient."""
    target_kl: float = Field(default=0.1, gt=0)
    """Target KL of the adaptive controller, in nats per token."""
    horizon: int = Field(default=10_000, ge=1)
    """Horizon of the adaptive controller: number of sequences over which the coefficient changes by at most about a
    fifth."""


class RolloutCorrectionSettings(ConfigSection):
    """Importance-sampling correction of off-policy data and of numerical differences to the server."""

    rollout_is: Literal["none", "token", "sequence"] = "token"
    """Importance ratios: per `token`, per `sequence` (the product over a row's tokens: unbiased, with a higher
    variance), or no correction."""
    rollout_is_mode: Literal["truncate", "mask"] = "truncate"
    """`truncate`: ratios above the threshold are clamped to it. `mask`: ratios outside [1 / threshold, threshold] are
    set to 0."""
    rollout_is_threshold: float = Field(default=2.0, ge=1)
    """Upper bound of the importance ratios."""


class RlAlgorithmSettings(ConfigSection):
    """The advantage estimation of `train.algorithm`, and the KL penalty in the reward."""

    gamma: float = Field(default=1.0, ge=0, le=1)
    """Discount factor per token, for `reinforce_plus_plus` and `gae`; per step, for `gigpo`."""
    lam: float = Field(default=1.0, ge=0, le=1)
    """GAE's lambda: 0 is the one-step advantage, 1 the Monte Carlo return."""
    norm_adv_by_std_in_grpo: bool = True
    """Divide the advantages of `grpo` and `gigpo` by the group's standard deviation."""
    step_advantage_w: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Weight of the step advantage of `gigpo`, beside the episode's."""
    use_kl_in_reward: bool = False
    """Subtract the KL penalty to the reference policy from each token's reward."""
    kl_penalty: KlType = "kl"
    """KL estimator of that penalty."""
    kl_ctrl: KlControlSettings = KlControlSettings.model_construct()
    rollout_correction: RolloutCorrectionSettings = RolloutCorrectionSettings.model_construct()


class ActorSettings(ConfigSection):
    """The policy's loss and update."""

    loss_mode: LossMode = "vanilla"
    """Policy loss. `vanilla`: PPO's clipped objective with a ratio per token and a dual clip; `gspo`: the clipped
    objective with a ratio per row, the geometric mean of its tokens' ratios; `cispo`: -A · log-prob, weighted by the
    clipped ratio as a constant, so that clipped tokens keep their gradient."""
    clip_ratio: float = Field(default=0.2, ge=0)
    """PPO clipping range: the probability ratio is clipped to [1 - clip_ratio, 1 + clip_ratio]."""
    clip_ratio_low: float | None = Field(default=None, ge=0, le=1)
    """Clipping range below 1; 1: no lower bound; null: `clip_ratio`."""
    clip_ratio_high: float | None = Field(default=None, ge=0)
    """Clipping range above 1; null: `clip_ratio`."""
    clip_ratio_c: float = Field(default=3.0, gt=1)
    """Dual-clip bound: maximum ratio that multiplies a negative advantage."""
    loss_agg_mode: Aggregation = "token-mean"
    """Aggregation of token losses: the mean over tokens; the mean over rows of each row's token mean or token sum; or
    the last one divided by `loss_scale_factor`."""
    loss_scale_factor: int | None = Field(default=None, ge=1)
    """Divisor of `seq-mean-token-sum-norm`, in tokens; null: the maximum length of a response
    (`policy_config.max_new_tokens`)."""
    entropy_coeff: float = 0.0
    """Coefficient of the entropy bonus."""
    use_kl_loss: bool = False
    """Add a KL loss to the reference policy."""
    kl_loss_coef: float = Field(default=0.001, ge=0)
    """Coefficient of the KL loss."""
    kl_loss_type: KlType = "low_var_kl"
    """KL estimator of the KL loss."""
    optim: OptimSettings = OptimSettings.model_construct()
    grad_clip: float = Field(default=1.0, gt=0)
    """Maximum gradient norm (clipping threshold)."""
    ppo_epochs: int = Field(default=1, ge=1)
    """Number of passes over a batch."""
    ppo_mini_batch_size: int | None = Field(default=None, ge=1)
    """Trajectories (for `webrl`: actions, of critic and actor) per optimizer step; null: one step per batch."""
    ppo_max_token_len_per_gpu: int = Field(default=16384, ge=1)
    """Maximum number of tokens in a micro-batch, per process; also the maximum length of a sequence."""
    ppo_micro_batch_size_per_gpu: int | None = Field(default=None, ge=1)
    """Maximum number of sequences in a micro-batch, per process; null: limited by tokens only."""
    shuffle: bool = True
    """Shuffle trajectories before they are split into mini-batches; false: keep their order."""
    recompute_old_log_probs: bool = True
    """Recompute the old log-probs of the ratio with the training weights; false: use the sampler's."""

    @property
    def low(self) -> float:
        """Clipping range below 1."""
        return known_or(self.clip_ratio_low, self.clip_ratio)

    @property
    def high(self) -> float:
        """Clipping range above 1."""
        return known_or(self.clip_ratio_high, self.clip_ratio)

    @model_validator(mode="after")
    def _loss_is_defined(self) -> ActorSettings:
        if self.low > 1:
            raise ValueError(f"clip_ratio must be at most 1, not {self.clip_ratio}, or clip_ratio_low must be given")
        return self


class RefSettings(ConfigSection):
    """The reference policy."""

    path: str | None = None
    """Model of the reference policy; null: the policy before the first policy-gradient training, an SFT baseline or the
    base model."""


class CriticSettings(ConfigSection):
    """The critic of `gae` and `webrl`; `webrl` reads `path`, `optim` and `grad_clip` only."""

    path: str | None = None
    """Model of the first critic, a critic or a policy; null: the policy. Later trainings go on with the critic of the
    one before."""
    optim: CriticOptimSettings = CriticOptimSettings.model_construct(lr=1e-5)
    grad_clip: float = Field(default=1.0, gt=0)
    """Maximum gradient norm (clipping threshold)."""
    cliprange_value: float = Field(default=0.5, gt=0)
    """Clipping range of value updates."""


class WebRLSettings(ConfigSection):
    """WebRL's actor-critic (`train.algorithm=webrl`)."""

    objective: Literal["paper", "released"] = "paper"
    """Version of the formulas: the paper's, or those of its released code, which differ."""
    beta: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """KL coefficient of the actor: weight of the log-ratio to the phase's initial policy in the paper's (beta ·
    log-ratio - A)². Larger values keep the actor closer to it. 0: the limit, an unconstrained policy gradient -A ·
    log-prob."""
    lam: float = Field(default=0.5, ge=0, le=1)
    """The paper's lambda: weight of the critic's one-step advantage; 1 - lam is the weight of the episode's outcome."""
    gamma: float = Field(default=0.9, ge=0, le=1)
    """Discount factor per step of the released code's Monte Carlo return; the paper has no discount."""
    heads: int = Field(default=2, ge=1, le=2)
    """Number of independent value heads of the critic; the minimum of their values is used. The paper has one."""
    critic_epochs: int = Field(default=1, ge=1)
    """Number of passes of the critic over the batch, before the `rl.actor.ppo_epochs` passes of the actor."""


class RlTrainerSettings(ConfigSection):
    """The trainer's checkpoints and precision."""

    save_freq: int = Field(default=1, ge=0)
    """Interval of resumable checkpoints, in optimizer steps; 0: only at the end."""
    critic_warmup: int = Field(default=0, ge=0)
    """Number of initial policy-gradient iterations that train the critic only."""
    bf16: bool | None = None
    """Compute in bfloat16; the optimizer's master weights stay float32. null: on GPUs only."""
    deepspeed: str | None = None
    """DeepSpeed configuration: the name of a shipped one or a path, as `algorithm_config.deepspeed_config_filename`;
    values of "auto" are filled from these settings. null: plain torch."""


class RlSettings(ConfigSection):
    """Policy-gradient training, where `train.algorithm` is not `sft`."""

    data: RlDataSettings = RlDataSettings.model_construct()
    replay: ReplaySettings = ReplaySettings.model_construct()
    model: RlModelSettings = RlModelSettings.model_construct()
    algorithm: RlAlgorithmSettings = RlAlgorithmSettings.model_construct()
    actor: ActorSettings = ActorSettings.model_construct()
    ref: RefSettings = RefSettings.model_construct()
    critic: CriticSettings = CriticSettings.model_construct()
    webrl: WebRLSettings = WebRLSettings.model_construct()
    trainer: RlTrainerSettings = RlTrainerSettings.model_construct()

    @property
    def has_reference(self) -> bool:
        """Whether a policy gradient limits the KL divergence from a reference policy."""
        return self.actor.use_kl_loss or self.algorithm.use_kl_in_reward
