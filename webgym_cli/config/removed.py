"""Settings without effect: the value that holds, and what to use instead. Pure.

Those of earlier versions are constants now, or gone; others are of WebGym's `update_online.yaml` and `default.yaml`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, NamedTuple

# No value of a setting that has no former default is another one.
ANY = object()


class Removed(NamedTuple):
    """A setting, or section, without effect."""

    value: Any
    """The former default, which is what holds now; `ANY`: nothing holds, nor for the keys of a section."""
    instead: str
    refused: bool = False
    """Whether another value is an error, because other data or other weights would result."""


def _pass_to_vllm(value: Any, *arguments: str) -> Removed:
    return Removed(value, f"vLLM's own arguments are passed on: serve.extra_args={json.dumps(arguments)}")


def _pass_to_llamafactory(**values: Any) -> dict[str, Removed]:
    words = "LLaMA-Factory's own arguments are passed on: train.extra="
    removed = {name: Removed(value, words + json.dumps({name: value})) for name, value in values.items()}
    return {f"algorithm_config.{name}": one for name, one in removed.items()}


def _drop(instead: str, *names: str) -> dict[str, Removed]:
    return dict.fromkeys(names, Removed(ANY, instead))


_PROBED = "a policy server that failed is used again once it answers a request for one token (rollout.policy_wait)"
_SLEEP = "a sleeping server drops its weights within 120 s and holds at most 10 GiB (serve.during_training)"
_REPLACED = "a browser is replaced after 400 contexts or two hours, and a context is closed after one"
# Dotted key or section -> what holds.
REMOVED = {
    **_drop("tasks.train and tasks.test name the task files", "data_path"),
    **_drop("each file is named by a -c of its own", "defaults"),
    **_drop("there is no Hydra here", "hydra"),
    **_drop("the model's folder tells its type", "model_config.model_type"),
    **_drop("a run knows its newest checkpoint", "policy_config.checkpoint_path"),
    **_drop("HF_TOKEN is the variable that is read", "policy_config.huggingface_token_env_var"),
    **_drop(_PROBED, *(f"rollout.policy_{name}" for name in ("cooldown", "cooldown_max", "failures"))),
    **_drop(_PROBED, *(f"rollout.policy_{name}" for name in ("pause", "pause_max"))),
    **_drop("the run is an argument of the command", "save_path"),
    **_drop("the nodes share the run's folder", "train.file_systems", "train.node_storage"),
    **_drop("Ray notices when a node is lost", "train.node_timeout"),
    **_drop("a server is started where one is needed; rollout.policy names another", "vllm_server_url"),
    "agent.max_tool_calls": Removed(16, "a response has at most 16 calls", refused=True),
    "agent.tool_max_length": Removed(2048, "a tool has a limit of its own: @tool(max_length=N)", refused=True),
    **_pass_to_llamafactory(dataloader_num_workers=2, dataloader_pin_memory=True, preprocessing_num_workers=16),
    **_pass_to_llamafactory(per_device_eval_batch_size=3, plot_loss=False, remove_unused_columns=False),
    **_pass_to_llamafactory(save_strategy="steps", save_total_limit=1),
    "algorithm_config.lora_dropout": Removed(0.0, 'train.extra={"lora_dropout": 0.1} passes it on', refused=True),
    "browser.context_minutes": Removed(60, _REPLACED),
    "browser.contexts_per_process": Removed(400, _REPLACED),
    "browser.device_scale_factor": Removed(1, "browser.width and browser.height set the size", refused=True),
    "browser.process_minutes": Removed(120, _REPLACED),
    "browser.webgl": Removed("auto", 'browser.args=["--disable-software-rasterizer"] turns WebGL off'),
    "filters.near_duplicate_bits": Removed(
        None, "filters.max_steps_per_task and drop_older_repeats limit repeated steps", refused=True
    ),
    "orm.balanced": Removed(True, "successes and failures are always as many", refused=True),
    "rl.actor.logprob_chunk": Removed(1024, "rl.actor.ppo_max_token_len_per_gpu limits the memory"),
    "rl.algorithm.normalize_by_steps": Removed(False, "rl.actor.loss_agg_mode weighs the rows", refused=True),
    "rl.algorithm.whiten_advantages": Removed(None, "the estimator says so (train.algorithm)", refused=True),
    "rl.critic.loss_agg_mode": Removed("token-mean", "the critic's loss is a mean over tokens", refused=True),
    "rl.replay.successes_only": Removed(True, "only successful episodes are replayed", refused=True),
    "rl.critic.optim.betas": Removed([0.9, 0.999], "the critic's are torch's defaults", refused=True),
    "rl.critic.optim.lr_warmup_steps": Removed(0, "the critic has no warm-up", refused=True),
    "rollout.test_sampling.min_p": Removed(None, "policy_config.min_p holds for test episodes too", refused=True),
    "serve.enforce_eager": _pass_to_vllm(False, "--enforce-eager"),
    "serve.max_num_batched_tokens": _pass_to_vllm(None, "--max-num-batched-tokens", "N"),
    "serve.mm_processor_cache_gb": _pass_to_vllm(4, "--mm-processor-cache-gb", "N"),
    "serve.prefix_caching": _pass_to_vllm(True, "--no-enable-prefix-caching"),
    "serve.sleep_level": Removed(2, _SLEEP),
    "serve.sleep_memory_gb": Removed(10, _SLEEP),
    "serve.sleep_timeout": Removed(120, _SLEEP),
    "serve.stop_grace": Removed(15.0, "a server has 15 s to end"),
    "train.stop_grace": Removed(30.0, "a trainer has 30 s to end"),
    "tasks.pool_bounds": Removed([0.2, 0.8], "a task is hard up to 0.2 and easy from 0.8 on", refused=True),
}


def list_notes(given: dict[str, Any], *, stored: bool) -> tuple[list[str], list[str]]:
    """Return the notes on settings without effect, and the errors.

    `stored`: they are those of a run, which has every setting of its version: only other values are worth a note.
    """
    notes, errors = [], []
    for key, value in given.items():
        removed = REMOVED[key]
        if isinstance(value, str):  # possibly a text of the environment
            with suppress(ValueError):
                value = json.loads(value)
        usual = value == removed.value or removed.value is ANY
        if removed.refused and not usual and not stored:
            errors.append(f"{key} is no setting any more: {removed.instead}")
        elif not (usual and stored):
            notes.append(f"{key} has no effect: {removed.instead}")
    return notes, errors
