"""Names of settings in verl, AgentFly and WebGym that differ here: the answer to such an unknown setting."""

from __future__ import annotations

import re
from collections.abc import Collection

from webgym_cli.config.removed import REMOVED

_BATCH = "rollout.episodes counts episodes: the questions of a batch times agent.num_chains"
_CHECKPOINTS = "each iteration's policy is saved; train.keep_weights and rl.trainer.save_freq set which states stay"
_DEEPSPEED = "rl.trainer.deepspeed names the DeepSpeed file, which shards and offloads"
_LENGTH = "serve.max_model_len limits prompt and response together"
_LOGPROBS = "log-probabilities are computed in the micro-batches of the update (rl.actor.ppo_max_token_len_per_gpu)"
_NODES = "docs/many-nodes.md: train.nodes for the training, rollout.executor for the rollout"
_REWARD = "agent.reward_name names a function, FILE.py:NAME; judge and orm are models that score"
_RESUME = "the same command again resumes; webgym resume RUN finds it"
_NO_SEQUENCE_PARALLEL = "there is none; rl.actor.ppo_max_token_len_per_gpu is the longest sequence of a process"
_RECOMPUTED = "there is none; rl.model.enable_gradient_checkpointing recomputes activations instead"
_STORED = "every episode is stored when it ends (webgym show RUN)"

# A dotted key or section there -> the setting here, or what to use instead. Longer entries win over their section.
FOREIGN = {
    # verl
    "algorithm": "train.algorithm and rl.algorithm hold verl's algorithm",
    "algorithm.adv_estimator": "train.algorithm",
    "algorithm.filter_groups": "rl.data.filter_groups",
    "algorithm.gigpo": "rl.algorithm",
    "actor_rollout_ref": "rl.actor, rl.model, rl.ref and rl.trainer hold its training, serve its server",
    "actor_rollout_ref.actor.fsdp_config": _DEEPSPEED,
    "actor_rollout_ref.actor.optim.lr_warmup_steps": "rl.actor.optim.lr_warmup_steps, in optimizer steps",
    "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio": "rl.actor.optim.lr_warmup_steps, in optimizer steps",
    "actor_rollout_ref.actor.policy_loss": "rl.actor",
    "actor_rollout_ref.actor.strategy": _DEEPSPEED,
    "actor_rollout_ref.actor.ulysses_sequence_parallel_size": _NO_SEQUENCE_PARALLEL,
    "actor_rollout_ref.actor.use_dynamic_bsz": "always; rl.actor.ppo_max_token_len_per_gpu limits a micro-batch",
    "actor_rollout_ref.model.enable_activation_offload": _RECOMPUTED,
    "actor_rollout_ref.model.lora.alpha": "rl.model.lora_alpha",
    "actor_rollout_ref.model.lora.rank": "rl.model.lora_rank",
    "actor_rollout_ref.model.path": "policy_config.base_model",
    "actor_rollout_ref.model.trust_remote_code": "policy_config.trust_remote_code",
    "actor_rollout_ref.ref": _LOGPROBS,
    "actor_rollout_ref.ref.fsdp_config": _DEEPSPEED,
    "actor_rollout_ref.ref.ulysses_sequence_parallel_size": _NO_SEQUENCE_PARALLEL,
    "actor_rollout_ref.rollout.agent.num_workers": "rollout.concurrency",
    "actor_rollout_ref.rollout.calculate_log_probs": "always: the server's log-probabilities are stored",
    "actor_rollout_ref.rollout.do_sample": "policy_config.temperature=0 is greedy",
    "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu": _LOGPROBS,
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": _LOGPROBS,
    "actor_rollout_ref.rollout.enable_prefix_caching": REMOVED["serve.prefix_caching"].instead,
    "actor_rollout_ref.rollout.mode": "loop.mode",
    "actor_rollout_ref.rollout.multi_turn.format": "agent.call_format",
    "actor_rollout_ref.rollout.multi_turn.max_assistant_turns": "agent.max_turns",
    "actor_rollout_ref.rollout.multi_turn.max_turns": "agent.max_turns",
    "actor_rollout_ref.rollout.multi_turn.max_user_turns": "agent.max_turns",
    "actor_rollout_ref.rollout.multi_turn.tool_config_path": "agent.tools",
    "actor_rollout_ref.rollout.n": "agent.num_chains",
    "actor_rollout_ref.rollout.name": "rollout.policy",
    "actor_rollout_ref.rollout.prompt_length": _LENGTH,
    "actor_rollout_ref.rollout.response_length": "policy_config.max_new_tokens",
    "actor_rollout_ref.rollout.temperature": "policy_config.temperature",
    "actor_rollout_ref.rollout.tensor_model_parallel_size": "serve.tensor_parallel_size",
    "actor_rollout_ref.rollout.top_k": "policy_config.top_k",
    "actor_rollout_ref.rollout.top_p": "policy_config.top_p",
    "actor_rollout_ref.rollout.val_kwargs": "rollout.test_sampling",
    "actor_rollout_ref.rollout.val_kwargs.n": "rollout.test_repeats",
    "critic": "rl.critic holds the critic; rl.actor.ppo_mini_batch_size and its like are the critic's, too",
    "critic.model.enable_activation_offload": _RECOMPUTED,
    "critic.model.path": "rl.critic.path",
    "critic.ulysses_sequence_parallel_size": _NO_SEQUENCE_PARALLEL,
    "custom_reward_function": _REWARD,
    "data": "tasks names the files, rollout the size of a batch, rl.data what is trained on",
    "data.gen_batch_size": _BATCH,
    "data.max_prompt_length": _LENGTH,
    "data.max_response_length": "policy_config.max_new_tokens",
    "data.seed": "seed",
    "data.shuffle": "tasks.sampler",
    "data.train_batch_size": _BATCH,
    "data.train_files": "tasks.train",
    "data.train_max_samples": "rollout.episodes",
    "data.trust_remote_code": "policy_config.trust_remote_code",
    "data.val_batch_size": "rollout.concurrency is how many episodes run at once, rollout.test_episodes how many",
    "data.val_files": "tasks.test",
    "data.val_max_samples": "rollout.test_episodes",
    "reward": _REWARD,
    "reward_model": _REWARD,
    "trainer": "loop, train, log_config and rl.trainer hold what verl's trainer does",
    "trainer.default_local_dir": "the run's folder is an argument of the command",
    "trainer.experiment_name": "log_config.run_name",
    "trainer.log_val_generations": "log_config.sample_trajectories",
    "trainer.logger": "log_config.tracking; metrics.jsonl is always written",
    "trainer.max_actor_ckpt_to_keep": "train.keep_weights",
    "trainer.max_critic_ckpt_to_keep": "train.keep_checkpoints",
    "trainer.n_gpus_per_node": "train.nproc_per_node",
    "trainer.nnodes": "train.nodes",
    "trainer.project_name": "log_config.project_name",
    "trainer.resume_from_path": _RESUME,
    "trainer.resume_mode": _RESUME,
    "trainer.rollout_data_dir": _STORED,
    "trainer.save_freq": _CHECKPOINTS,
    "trainer.test_freq": "loop.eval_every",
    "trainer.total_epochs": "loop.iterations, each with rollout.episodes episodes",
    "trainer.total_training_steps": "loop.iterations",
    "trainer.val_before_train": "loop.val_before_train",
    "trainer.val_only": "webgym rollout RUN --split test",
    "trainer.validation_data_dir": _STORED,
    # AgentFly
    "agent.agent_type": "agent.call_format",
    "agent.backend": "rollout.policy",
    "agent.backend_config": "rollout.policy",
    "agent.max_model_len": "serve.max_model_len",
    "agent.generation_config": "policy_config",
    "agent.generation_config.max_tokens": "policy_config.max_new_tokens",
    "agent.init_config": "agent",
    "agent.model_name_or_path": "policy_config.base_model",
    "agent.run_config": "agent",
    "agent.context_config": "docs/tools.md: tools are functions and classes of the rollout's process",
    "agent.max_concurrent_chains": "rollout.concurrency",
    "agent.template": "policy_config.template",
    "agent.tool_parser_name": "agent.call_format",
    "agent.train_on_last_turn": "rl.data.train_on_last_turn",
    "agent.use_agent": "tasks.train decides: a file of questions is answered with agent.tools",
    # WebGym
    "algorithm_config.init_model_from_hf": "a training goes on from the run's policy; a new run starts from "
    "policy_config.base_model",
    "env_config": "rollout, browser and tasks hold what WebGym's env_config does",
    "env_config.all_rank_weights": _NODES,
    "env_config.completion_grace_period": "rollout.completion_grace",
    "env_config.completion_threshold": "rollout.completion_threshold",
    "env_config.max_retries": "rollout.endpoint.retries for a request, rollout.max_attempts for an episode",
    "env_config.max_vllm_sessions": "rollout.concurrency",
    "env_config.multinode_rank": _NODES,
    "env_config.multinode_rank_suffix": _NODES,
    "env_config.multinode_total_workers": _NODES,
    "env_config.operation_timeout": "browser.action_timeout and browser.navigation_timeout",
    "env_config.rank_load_weight": _NODES,
    "env_config.resume_checkpoint_path": _RESUME,
    "env_config.save_every_percent": _STORED,
    "env_config.save_traj_progress": _STORED,
    "env_config.server_size": "rollout.concurrency",
    "env_config.split": "webgym rollout RUN --split train or --split test",
    "env_config.task_timeout_minutes": "rollout.episode_timeout, in seconds",
    "env_config.test_difficulty_max_steps": "rollout.test_max_steps",
    "env_config.test_rank": _NODES,
    "env_config.test_tasks": "tasks.test",
    "env_config.test_tasks_repeat_times": "rollout.test_repeats",
    "env_config.test_tasks_rollout_size": "rollout.test_episodes",
    "env_config.test_total_workers": _NODES,
    "env_config.total_load_weight": _NODES,
    "env_config.train_difficulty_max_steps": "rollout.train_max_steps",
    "env_config.train_tasks": "tasks.train",
    "env_config.train_tasks_rollout_size": "rollout.episodes",
    "env_config.train_tasks_sampler": "tasks.sampler",
    "env_config.verbose": "webgym status RUN --watch shows the work",
    "env_config.vllm_server_url": "rollout.policy",
    "env_config.vllm_timeout": "rollout.endpoint.timeout",
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
    "actor_rollout_ref.ref": "rl.ref",
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
