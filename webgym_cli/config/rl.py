"""Settings of policy-gradient training. The text under a field is its help.

Their names are those of the example that users know. The trainer reads the same classes in the train role's
interpreter (`train/rl/options.py`), which has pydantic and nothing else that webgym needs.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from webgym_cli.config.section import ConfigSection

# Which episodes are compared with one another.
GroupBy = Literal["chain", "task", "start"]
# How the distance from the reference is estimated.
KlType = Literal["kl", "abs", "mse", "low_var_kl"]
# How tokens' losses become one number, by what the batch holds.
Mean = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"]
# The same, or by a constant.
Aggregation = Literal[Mean, "seq-mean-token-sum-norm"]


class RlDataSettings(ConfigSection):
    """How the batch is made of the run's episodes."""

    last_n_iterations: int = Field(default=1, ge=1)
    """Iterations that are read, the current one included. Above 1 there are episodes of older policies among them,
    which each trajectory names."""
    group_by: GroupBy | None = None
    """Which episodes are compared with one another, never over several iterations. `chain`: those of one draw; a task
    that is drawn comes `agent.num_chains` times in a row, on a seed of its own each time, and with `agent.greedy_chain`
    once more (on MiniWoB and the fixture sites the chains meet variants of the task: their mean is a baseline that no
    single action had a part in all the same). `task`: all of the same task, in however many draws. `start`: those of
    the same task on the same seed, which nothing but the policy's sampling tells apart. null: `chain` where a task that
    is drawn comes several times, else `task`."""
    merge_turns: bool = True
    """Put the steps of a trajectory into one row as long as each prompt begins with all that the row has so far. false:
    a row a step."""
    max_row_tokens: int | None = Field(default=None, ge=2)
    """Longest row; a trajectory with a longer one is masked. null: whatever the server took."""


# The inverse of a geometric mean of tokens' probabilities.
Perplexity = Annotated[float, Field(ge=1, allow_inf_nan=False)]


class ReplaySettings(ConfigSection):
    """What the batch of `train.algorithm=webrl` takes over from earlier episodes, beside the iteration's own."""

    experience: tuple[str, ...] = ()
    """Folders of runs whose training episodes may be taken over, beside those of this run's own earlier iterations:
    WebRL's demonstrations."""
    window: tuple[Perplexity, Perplexity | None] = (1 / 0.95, 1 / 0.5)
    """Perplexities of an action, without its stop token, under the policy that is trained: from the first on, below
    the second (null: however large). The default: a mean probability above 0.5 and up to 0.95."""
    ratio: float = Field(default=2.0, ge=0, allow_inf_nan=False)
    """Most actions that are taken over, for each of the iteration's own; 0: none, and nothing is scored."""
    successes_only: bool = True
    """Take over what solved its task only."""
    one_per_task: bool = True
    """Of all episodes of a task take over the first alone: of the runs in the order of `experience`, then of this one,
    by iteration. A task is its instruction on its site."""
    base_url: str = ""
    """OpenAI base URL of a vLLM server that has the policy, under the name `serve.served_model_name`; empty: the run's
    own server, started where it doesn't run."""
    api_key_env_var: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the key; the key itself never stands in settings."""
    concurrency: int = Field(default=16, ge=1)
    """Actions that are scored at once."""
    retries: int = Field(default=2, ge=0)
    """Repeats of a request that the server did not answer."""
    timeout: float = Field(default=300.0, gt=0)
    """Deadline of one request, in seconds."""

    @model_validator(mode="after")
    def _window_is_open(self) -> ReplaySettings:
        low, high = self.window
        if high is not None and high <= low:
            raise ValueError(f"window: no perplexity is from {low:g} on and below {high:g}")
        return self


class RlModelSettings(ConfigSection):
    """The policy's network."""

    attn_implementation: Literal["auto", "flash_attention_2", "sdpa", "eager"] = "auto"
    """`auto`: flash attention where it is installed and there is a GPU, else `sdpa`, sequence by sequence if packed."""
    use_remove_padding: bool = True
    """Pack sequences without padding. Off for models whose layers can't keep packed sequences apart."""
    enable_gradient_checkpointing: bool = True
    """Compute activations again in the backward pass rather than keep them."""
    freeze_vision_tower: bool = True
    """Train the language model only."""
    lora_rank: int = Field(default=0, ge=0)
    """Rank of the LoRA adapter that is trained; 0: all weights are trained."""
    lora_alpha: int = Field(default=16, ge=1)
    """The adapter counts lora_alpha / lora_rank times."""
    target_modules: str = "all-linear"
    """Layers that get an adapter: all linear ones but the output layer, or names with commas between."""


class OptimSettings(ConfigSection):
    """AdamW with a constant learning rate."""

    lr: float = Field(default=1e-6, gt=0)
    """Learning rate."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Decoupled weight decay."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    """Decay of the two moments."""
    eps: float = Field(default=1e-8, ge=0)
    """Added to the denominator."""
    lr_warmup_steps: int = Field(default=0, ge=0)
    """Optimizer steps in which the rate rises from 0."""

    def rate(self, step: int) -> float:
        """Return the learning rate of an optimizer step, counted from 0."""
        return self.lr * min(1.0, (step + 1) / (self.lr_warmup_steps + 1))


class KlControlSettings(ConfigSection):
    """The coefficient of a KL in the reward, fixed or steered to a target."""

    type: Literal["fixed", "adaptive"] = "fixed"
    """`adaptive`: the coefficient changes after each batch."""
    kl_coef: float = Field(default=0.001, ge=0)
    """The coefficient at the beginning."""
    target_kl: float = Field(default=0.1, gt=0)
    """The KL that is aimed at, in nats a token."""
    horizon: int = Field(default=10_000, ge=1)
    """Sequences until the coefficient may have changed by about a fifth."""


class RolloutCorrectionSettings(ConfigSection):
    """How data of other weights, or of the server's arithmetic, is corrected."""

    rollout_is: Literal["none", "token", "sequence"] = "token"
    """A ratio a token, one a row (the product over its tokens: unbiased, more variance), or no correction."""
    rollout_is_mode: Literal["truncate", "mask"] = "truncate"
    """`truncate`: larger ratios count as the cap. `mask`: ratios outside [1 / cap, cap] count as 0."""
    rollout_is_threshold: float = Field(default=2.0, ge=1)
    """The cap."""


class RlAlgorithmSettings(ConfigSection):
    """Advantages, by the estimator that `train.algorithm` names, and the KL in the reward."""

    gamma: float = Field(default=1.0, ge=0, le=1)
    """Discount a token, for `reinforce_plus_plus` and `gae`."""
    lam: float = Field(default=1.0, ge=0, le=1)
    """GAE's mixture of one-step (0) and whole returns (1)."""
    norm_adv_by_std_in_grpo: bool = True
    """Divide GRPO's advantages by the group's standard deviation."""
    whiten_advantages: bool | None = None
    """Mean 0 and variance 1 over the batch's tokens. null: as defined, for `reinforce_plus_plus` and `gae` only."""
    normalize_by_steps: bool = False
    """Let each trajectory weigh the same, however many rows (steps) it has."""
    use_kl_in_reward: bool = False
    """Take the distance from the reference off each token's reward."""
    kl_penalty: KlType = "kl"
    """Its estimate."""
    kl_ctrl: KlControlSettings = KlControlSettings()
    rollout_correction: RolloutCorrectionSettings = RolloutCorrectionSettings()


class ActorSettings(ConfigSection):
    """The policy's loss and update."""

    clip_ratio: float = Field(default=0.2, ge=0)
    """How far the probability ratio may leave 1 and still be rewarded for it."""
    clip_ratio_low: float | None = Field(default=None, ge=0, lt=1)
    """The same below 1; null: `clip_ratio`."""
    clip_ratio_high: float | None = Field(default=None, ge=0)
    """The same above 1; null: `clip_ratio`."""
    clip_ratio_c: float = Field(default=3.0, gt=1)
    """Dual clip: a negative advantage counts at most this many times."""
    loss_agg_mode: Aggregation = "token-mean"
    """How the tokens' losses become one number: their mean; the mean over the rows of each row's mean or sum; or that
    of the sums over `loss_scale_factor`."""
    loss_scale_factor: int | None = Field(default=None, ge=1)
    """Tokens that `seq-mean-token-sum-norm` divides by: a constant such as the longest response."""
    entropy_coeff: float = 0.0
    """Weight of the entropy, which is to stay high."""
    use_kl_loss: bool = False
    """Keep the policy near the reference by a term of the loss."""
    kl_loss_coef: float = Field(default=0.001, ge=0)
    """Weight of that term."""
    kl_loss_type: KlType = "low_var_kl"
    """Its estimate."""
    optim: OptimSettings = OptimSettings()
    grad_clip: float = Field(default=1.0, gt=0)
    """Longest gradient."""
    ppo_epochs: int = Field(default=1, ge=1)
    """Times that a batch is worked through."""
    ppo_mini_batch_size: int | None = Field(default=None, ge=1)
    """Trajectories (of `webrl`: actions, for critic and actor) an optimizer step; null: the whole batch makes one."""
    ppo_max_token_len_per_gpu: int = Field(default=16384, ge=1)
    """Tokens that go through the model at once, in each process; no sequence may be longer."""
    ppo_micro_batch_size_per_gpu: int | None = Field(default=None, ge=1)
    """Most sequences at once; null: as many as the tokens allow."""
    shuffle: bool = True
    """Draw the mini-batches at random, rather than in the order of the trajectories."""
    recompute_old_log_probs: bool = True
    """Compute the log-probs that the ratio compares with, rather than take the sampler's."""
    logprob_chunk: int = Field(default=1024, ge=1)
    """Tokens whose logits exist at once."""

    @property
    def low(self) -> float:
        """How far below 1 the ratio is rewarded."""
        return self.clip_ratio if self.clip_ratio_low is None else self.clip_ratio_low

    @property
    def high(self) -> float:
        """How far above 1."""
        return self.clip_ratio if self.clip_ratio_high is None else self.clip_ratio_high

    @model_validator(mode="after")
    def _loss_is_defined(self) -> ActorSettings:
        if self.low >= 1:
            raise ValueError(f"clip_ratio must be below 1, not {self.clip_ratio}, or clip_ratio_low must be given")
        if self.loss_agg_mode == "seq-mean-token-sum-norm" and self.loss_scale_factor is None:
            raise ValueError("loss_agg_mode=seq-mean-token-sum-norm needs loss_scale_factor, a number of tokens")
        return self


class RefSettings(ConfigSection):
    """The reference policy."""

    path: str | None = None
    """Its model; null: the policy that the run's policy gradients began with, an SFT baseline or the base model."""


class CriticSettings(ConfigSection):
    """The critic of `gae` and of `webrl`, which reads where it starts from, `optim` and `grad_clip`."""

    path: str | None = None
    """The model that it starts from, a critic or a policy; null: the critic of the training before, at first the
    policy."""
    optim: OptimSettings = OptimSettings(lr=1e-5)
    grad_clip: float = Field(default=1.0, gt=0)
    """Longest gradient."""
    cliprange_value: float = Field(default=0.5, gt=0)
    """How far a value may move in an update."""
    loss_agg_mode: Mean = "token-mean"
    """How the tokens' losses become one number."""


class WebRLSettings(ConfigSection):
    """WebRL's actor-critic (`train.algorithm=webrl`)."""

    objective: Literal["paper", "released"] = "paper"
    """Whose formulas: those of the paper, or those that its released code computes, which differ."""
    beta: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Weight of the actor's log-ratio to the policy that the phase began with, in the paper's (beta · log-ratio - A)²:
    the larger, the nearer the actor stays to it. 0: the limit, the policy gradient -A · log-prob without any hold."""
    lam: float = Field(default=0.5, ge=0, le=1)
    """The paper's mixture of what a step changed, by the critic (1), and of what came of the whole episode (0)."""
    gamma: float = Field(default=0.9, ge=0, le=1)
    """Discount a step of the released code's Monte Carlo return; the paper has none."""
    heads: Literal[1, 2] = 2
    """Heads of the critic, each trained on its own; the least of their values counts. The paper speaks of one."""
    critic_epochs: int = Field(default=1, ge=1)
    """Times that the critic works through the batch, before the actor does `rl.actor.ppo_epochs` times."""


class RlTrainerSettings(ConfigSection):
    """The training as a whole."""

    save_freq: int = Field(default=1, ge=0)
    """Optimizer steps between two states to go on from; 0: none before the end."""
    critic_warmup: int = Field(default=0, ge=0)
    """Iterations at the beginning of policy gradients in which only the critic learns."""
    bf16: bool | None = None
    """Compute in bfloat16; the optimizer's weights stay float32. null: on a GPU."""
    deepspeed: str | None = None
    """A shipped DeepSpeed configuration's name or a path, as `algorithm_config.deepspeed_config_filename`; values that
    are "auto" follow these settings. null: plain torch."""


class RlSettings(ConfigSection):
    """Policy-gradient training, where `train.algorithm` is not `sft`."""

    data: RlDataSettings = RlDataSettings()
    replay: ReplaySettings = ReplaySettings()
    model: RlModelSettings = RlModelSettings()
    algorithm: RlAlgorithmSettings = RlAlgorithmSettings()
    actor: ActorSettings = ActorSettings()
    ref: RefSettings = RefSettings()
    critic: CriticSettings = CriticSettings()
    webrl: WebRLSettings = WebRLSettings()
    trainer: RlTrainerSettings = RlTrainerSettings()
