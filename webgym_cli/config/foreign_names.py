"""Names of settings in verl, AgentFly and WebGym that differ here: the answer to such an unknown setting."""

from __future__ import annotations

import re
from collections.abc import Collection

from webgym_cli.config.removed import REMOVED

_BATCH = "rollout.episodes counts episodes: the questions of a batch times agent.num_chains"
_CHECKPOINTS = "each iteration's policy is saved; train.keep_weights and rl.trainer.save_freq set which states stay"
_LENGTH = "serve.max_model_len limits prompt and response together"
_NODES = "docs/many-nodes.md: train.nodes for the training, rollout.executor for the rollout"
_REWARD = "agent.reward_name names a function, FILE.py:NAME; judge and orm are models that score"
_RESUME = "the same command again resumes; webgym resume RUN finds it"
_STORED = "every episode is stored when it ends (webgym show RUN)"

# A dotted key or section there -> the setting here, or what to use instead. Longer entries win over their section.
FOREIGN = {
    # verl
    "algorithm": "train.algorithm and rl.algorithm hold verl's algorithm",
    "algorithm.adv_estimator": "train.algorithm",
    "algorithm.filter_groups": "rl.data.filter_groups",
    "actor_rollout_ref": "rl.actor, rl.model, rl.ref and rl.trainer hold its training, serve its server",
    "actor_rollout_ref.actor.use_dynamic_bsz": "always; rl.actor.ppo_max_token_len_per_gpu limits a micro-batch",
    "actor_rollout_ref.actor.policy_loss": "rl.actor",
    "actor_rollout_ref.model.path": "policy_config.base_model",
    "actor_rollout_ref.rollout.multi_turn.format": "agent.call_format",
    "actor_rollout_ref.rollout.multi_turn.max_assistant_turns": "agent.max_turns",
    "actor_rollout_ref.rollout.multi_turn.tool_config_path": "agent.tools",
    "actor_rollout_ref.rollout.n": "agent.num_chains",
    "actor_rollout_ref.rollout.prompt_length": _LENGTH,
    "actor_rollout_ref.rollout.response_length": "policy_config.max_new_tokens",
    "actor_rollout_ref.rollout.temperature": "policy_config.temperature",
    "actor_rollout_ref.rollout.tensor_model_parallel_size": "serve.tensor_parallel_size",
    "actor_rollout_ref.rollout.top_k": "policy_config.top_k",
    "actor_rollout_ref.rollout.top_p": "policy_config.top_p",
    "actor_rollout_ref.rollout.val_kwargs": "rollout.test_sampling",
    "critic": "rl.critic holds the critic; rl.actor.ppo_mini_batch_size and its like are the critic's, too",
    "critic.model.path": "rl.critic.path",
    "custom_reward_function": _REWARD,
    "data": "tasks names the files, rollout the size of a batch, rl.data what is trained on",
    "data.max_prompt_length": _LENGTH,
    "data.max_response_length": "policy_config.max_new_tokens",
    "data.train_batch_size": _BATCH,
    "data.train_files": "tasks.train",
    "data.val_files": "tasks.test",
    "reward": _REWARD,
    "reward_model": _REWARD,
    "trainer": "loop, train, log_config and rl.trainer hold what verl's trainer does",
    "trainer.default_local_dir": "the run's folder is an argument of the command",
    "trainer.experiment_name": "log_config.run_name",
    "trainer.logger": "log_config.tracking; metrics.jsonl is always written",
    "trainer.n_gpus_per_node": "train.nproc_per_node",
    "trainer.nnodes": "train.nodes",
    "trainer.project_name": "log_config.project_name",
    "trainer.resume_mode": _RESUME,
    "trainer.save_freq": _CHECKPOINTS,
    "trainer.test_freq": "loop.eval_every",
    "trainer.total_training_steps": "loop.iterations",
    "trainer.total_epochs": "loop.iterations, each with rollout.episodes episodes",
    # AgentFly
    "agent.agent_type": "agent.call_format",
    "agent.backend": "rollout.policy",
    "agent.generation_config": "policy_config",
    "agent.model_name_or_path": "policy_config.base_model",
    "agent.max_concurrent_chains": "rollout.concurrency",
    "agent.template": "policy_config.template",
    "agent.train_on_last_turn": "rl.data.train_on_last_turn",
    "agent.use_agent": "tasks.train decides: a file of questions is answered with agent.tools",
    # WebGym
    "algorithm_config.init_model_from_hf": "a training goes on from the run's policy; a new run starts from "
    "policy_config.base_model",
    "env_config": "rollout, browser and tasks hold what WebGym's env_config does",
    "env_config.completion_grace_period": "rollout.completion_grace",
    "env_config.completion_threshold": "rollout.completion_threshold",
    "env_config.max_retries": "rollout.policy_retries for a request, rollout.max_attempts for an episode",
    "env_config.max_vllm_sessions": "rollout.concurrency",
    "env_config.multinode_rank": _NODES,
    "env_config.multinode_total_workers": _NODES,
    "env_config.operation_timeout": "browser.action_timeout and browser.navigation_timeout",
    "env_config.resume_checkpoint_path": _RESUME,
    "env_config.save_every_percent": _STORED,
    "env_config.server_size": "rollout.concurrency",
    "env_config.split": "webgym rollout RUN --split train or --split test",
    "env_config.task_timeout_minutes": "rollout.episode_timeout, in seconds",
    "env_config.test_difficulty_max_steps": "rollout.test_max_steps",
    "env_config.test_tasks": "tasks.test",
    "env_config.test_tasks_repeat_times": "rollout.test_repeats",
    "env_config.test_tasks_rollout_size": "rollout.test_episodes",
    "env_config.train_difficulty_max_steps": "rollout.train_max_steps",
    "env_config.train_tasks": "tasks.train",
    "env_config.train_tasks_rollout_size": "rollout.episodes",
    "env_config.train_tasks_sampler": "tasks.sampler",
    "env_config.vllm_server_url": "rollout.policy",
    "env_config.vllm_timeout": "rollout.policy_timeout",
    "openai_config": "judge",
    "openai_config.blocking_detection": "judge.jobs.blocking",
    "openai_config.blocking_detection.model": "judge.jobs.blocking.model",
    "openai_config.evaluation": "judge",
    "openai_config.keypoint_detection": "judge.jobs.key_points",
    "openai_config.keypoint_detection.model": "judge.jobs.key_points.model",
    "openai_config.openai_api_key_env_var": "judge.api_key_env_var",
}
# Sections that are elsewhere here and whose settings keep their names.
MOVED = {
    "actor_rollout_ref.actor": "rl.actor",
    "actor_rollout_ref.model": "rl.model",
    "actor_rollout_ref.rollout": "serve",
    "algorithm": "rl.algorithm",
    "critic": "rl.critic",
    "data": "rl.data",
    "trainer": "rl.trainer",
}


def answer_foreign(key: str, keys: Collection[str]) -> tuple[str, str]:
    """Return our setting for another system's dotted key, and the suffix for a message; each is empty if unknown."""
    key = re.sub(r"^agent\.(init|run)_config\.", "agent.", key.lstrip("+~"))  # Hydra's marks; AgentFly's own sections
    parts = key.split(".")
    for depth in range(len(parts), 0, -1):
        section, rest = ".".join(parts[:depth]), parts[depth:]
        for moved in (FOREIGN.get(section, ""), MOVED.get(section, "")):
            ours = ".".join((moved, *rest))
            if ours in keys:
                return ours, f"; it is {ours!r} here"
            if ours in REMOVED:
                return "", f": {REMOVED[ours].instead}"
        if words := FOREIGN.get(section):
            is_section = any(known.startswith(f"{words}.") for known in keys)
            return "", f"; it is in {words!r} here" if is_section else f": {words}"
    return "", ""
