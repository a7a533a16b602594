"""Settings that have no effect without another one, which a command names before it starts."""

from __future__ import annotations

import json
from collections.abc import Callable

from webgym_cli.config.load import flat_values
from webgym_cli.config.model import Settings
from webgym_cli.config.renamed import find_section
from webgym_cli.records.series import ORACLE

# By setting or section, separated by spaces: the settings that decide whether they have an effect, and whether these
# values let them have one.
_Partners = dict[str, tuple[str, Callable[..., object]]]
_GROUPS = {"grpo", "rloo", "remax"}
_ESTIMATORS = _GROUPS | {"reinforce_plus_plus", "gae", "gigpo"}


def _needs(*names: str) -> Callable[[str], bool]:
    """Return whether an estimator is one of these, or an algorithm of a plug-in, which may read all."""
    return lambda name: name in names or name not in _ESTIMATORS


# The others also choose what `export-sharegpt` writes, or are harmless in a recipe for every algorithm.
_IMITATION = (
    "learning_rate max_grad_norm weight_decay num_train_epochs warmup_steps lr_scheduler_type cutoff_len "
    "per_device_train_batch_size gradient_accumulation_steps finetuning_type lora_rank lora_alpha lora_target "
    "freeze_vision_tower freeze_multi_modal_projector freeze_language_model disable_gradient_checkpointing bf16 "
    "deepspeed_config_filename save_steps save_only_model report_to positive_samples_to_train weighting "
    "recency_bias_power"
)
_PARTNERS: _Partners = {
    "judge": ("judge.base_url", bool),
    "tasks.difficulty_ratio": ("tasks.sampler", "ratio".__eq__),
    "tasks.pool_shares": ("tasks.sampler", "pass_rate".__eq__),
    "rollout.completion_grace": ("rollout.completion_threshold", lambda threshold: threshold < 1),
    # the gateway ends no session of an agent for these
    "rollout.max_parse_errors rollout.max_repeated_actions": (
        "rollout.agent rollout.policy",
        lambda agent, policy: not agent or policy == ORACLE,
    ),
    "rollout.ray_address": ("rollout.executor train.executor", lambda *executors: "ray" in executors),
    "rollout.ray_cpus": ("rollout.executor", "ray".__eq__),
    "train.nodes": ("train.executor train.nodes", lambda executor, nodes: executor == "ray" or nodes == 1),
    "loop.max_staleness loop.stale": ("loop.mode", "async".__eq__),
    "loop.demonstration_episodes loop.demonstration_algorithm": ("loop.demonstration_iterations", bool),
    " ".join(f"algorithm_config.{name}" for name in _IMITATION.split()): (
        "train.algorithm loop.demonstration_iterations",
        lambda name, demonstrations: name not in _ESTIMATORS or demonstrations,
    ),
    "algorithm_config.eval_strategy algorithm_config.eval_steps": (
        "algorithm_config.do_eval algorithm_config.val_split_ratio",
        lambda *values: all(values),
    ),
    "algorithm_config.warmup_steps": ("algorithm_config.lr_scheduler_type", "constant".__ne__),
    "algorithm_config.lora_rank algorithm_config.lora_alpha algorithm_config.lora_target": (
        "algorithm_config.finetuning_type",
        "lora".__eq__,
    ),
    # `rl.data.group_by` also groups what `export-sharegpt` writes.
    "rl.model rl.algorithm rl.actor rl.ref rl.critic rl.trainer rl.data.filter_groups rl.data.merge_turns "
    "rl.data.train_on_last_turn rl.data.max_row_tokens rl.data.last_n_iterations rl.data.shaping": (
        "train.algorithm loop.demonstration_algorithm",
        lambda *algorithms: set(algorithms) != {"sft"},
    ),
    "rl.webrl rl.replay": ("train.algorithm", "webrl".__eq__),
    "rl.algorithm rl.actor.loss_mode rl.actor.clip_ratio rl.actor.clip_ratio_low rl.actor.clip_ratio_high "
    "rl.actor.clip_ratio_c rl.actor.loss_agg_mode rl.actor.entropy_coeff rl.actor.use_kl_loss "
    "rl.actor.recompute_old_log_probs rl.critic.cliprange_value rl.trainer.critic_warmup": (
        "train.algorithm",
        "webrl".__ne__,
    ),
    "rl.model.lora_alpha rl.model.target_modules": ("rl.model.lora_rank", bool),
    "rl.actor.kl_loss_coef rl.actor.kl_loss_type": ("rl.actor.use_kl_loss", bool),
    "rl.actor.clip_ratio": ("rl.actor.clip_ratio_low rl.actor.clip_ratio_high", lambda *bounds: None in bounds),
    "rl.actor.clip_ratio_c": ("rl.actor.loss_mode", "vanilla".__eq__),
    "rl.actor.loss_scale_factor": ("rl.actor.loss_agg_mode", "seq-mean-token-sum-norm".__eq__),
    "rl.algorithm.kl_ctrl rl.algorithm.kl_penalty": ("rl.algorithm.use_kl_in_reward", bool),
    "rl.algorithm.kl_ctrl.target_kl rl.algorithm.kl_ctrl.horizon": ("rl.algorithm.kl_ctrl.type", "adaptive".__eq__),
    "rl.algorithm.rollout_correction.rollout_is_mode rl.algorithm.rollout_correction.rollout_is_threshold": (
        "rl.algorithm.rollout_correction.rollout_is",
        "none".__ne__,
    ),
    # the sampler's own log-probabilities leave nothing to correct
    "rl.algorithm.rollout_correction": ("rl.actor.recompute_old_log_probs", bool),
    "rl.algorithm.gamma": ("train.algorithm", lambda name: name not in _GROUPS),
    "rl.algorithm.lam": ("train.algorithm", _needs("gae")),
    "rl.algorithm.norm_adv_by_std_in_grpo": ("train.algorithm", _needs("grpo", "gigpo")),
    "rl.algorithm.step_advantage_w": ("train.algorithm", _needs("gigpo")),
    "rl.critic rl.trainer.critic_warmup": ("train.algorithm", _needs("gae")),
    "rl.ref": (
        "train.algorithm rl.actor.use_kl_loss rl.algorithm.use_kl_in_reward",
        lambda name, loss, reward: name == "webrl" or loss or reward,
    ),
}


def list_ineffective(settings: Settings) -> list[str]:
    """Return a note for each group of changed settings that has no effect because of another one's value."""
    usual, values = flat_values(Settings()), flat_values(settings)
    changed = [key for key, value in values.items() if value != usual.get(key)]
    notes = []
    for names, (partners, holds) in _PARTNERS.items():
        given = [key for key in changed if find_section(key, names.split())]
        deciding = {key: values[key] for key in partners.split()}
        if given and not holds(*deciding.values()):
            reason = ", ".join(f"{key} is {json.dumps(value)}" for key, value in deciding.items())
            notes.append(f"{', '.join(given)}: no effect: {reason}")
    for site, known in settings.sites.items():
        if known.reset.strip() and not known.is_reset:
            notes.append(f'sites.{site}.reset: no effect: sites.{site}.isolation is "{known.isolation}"')
    return notes
