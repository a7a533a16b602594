"""The training backends of our own trainer (`trainer/`): policy gradients, and WebRL's actor-critic."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from webgym_cli.config.algorithm_config import FilterSettings
from webgym_cli.config.estimators import ESTIMATORS
from webgym_cli.config.model import Settings
from webgym_cli.config.model_families import find_model_folder
from webgym_cli.config.rl import RlSettings
from webgym_cli.config.shipped import find_deepspeed_file, read_deepspeed_file
from webgym_cli.errors import MissingStageError, SettingsError
from webgym_cli.records.checkpoint import Checkpoint, LoraAdapter
from webgym_cli.records.dataset import RlData
from webgym_cli.records.unfit_models import find_unfit
from webgym_cli.store import checkpoints
from webgym_cli.store.adapters import AdapterStart, plan_adapter
from webgym_cli.store.checkpoints import algorithm
from webgym_cli.store.prepared import describe_batch, read_batch
from webgym_cli.store.run import RunDir
from webgym_cli.store.weights import Tensor
from webgym_cli.train import footprint, working_dir
from webgym_cli.train.backend import PlanInputs, TrainerLaunch, TrainingBackend, TrainingStart, TrainPlan, fresh_note
from webgym_cli.train.footprint import TrainingMemory, rl_memory
from webgym_cli.train.plan import (
    build_plan,
    find_placement,
    find_resumable,
    identify,
    torchrun_command,
    trainer_env,
)
from webgym_cli.train.registry import BACKENDS
from webgym_cli.train.working_dir import TrainingIdentity, has_optimizer_states
from webgym_cli.util.files import read_optional_object
from webgym_cli.util.optional import when
from webgym_cli.util.registry import portable_plugins
from webgym_cli.venvs.locate import role_python

LAUNCH_FILE = "launch.json"
DEEPSPEED_SETTING = "rl.trainer.deepspeed"
MODULE = "webgym_cli.trainer"
CRITIC = "critic"
# Keys that don't change the result of the training, or that count otherwise: `carried`, and what DeepSpeed's file has.
PLACES = ("data", "plugins", "output_dir", "save_freq", "carry_state", "deepspeed")


def plan_rl(inputs: PlanInputs, *, webrl: bool = False) -> TrainPlan:
    """Return the plan for training on the prepared batch.

    Raises `MissingStageError` without a batch of the current policy, `VenvError` without the train venv, `UsageError`
    for damaged files.
    """
    run, settings, newest = inputs.run, inputs.settings, checkpoints.current(inputs.run)
    batch = read_batch(run, settings, webrl=webrl)
    # the newest policy of another backend: the policy gradients started from it; None: from the base model
    began = next((one for one in reversed(checkpoints.checkpoints(run)) if not _is_ours(one.algorithm)), None)
    python, placement = role_python(settings, "train"), find_placement(settings, inputs.environ)
    folder = working_dir.partial_folder(run, batch.model_name)
    adapter = _plan_adapter(run, settings, newest, webrl=webrl)
    config = _trainer_config(inputs, batch, adapter, began, webrl=webrl)
    deepspeed = read_deepspeed_file(config["trainer"]["deepspeed"])
    data = describe_batch(run, batch)
    training = identify(data, placement, _digest(run, config, deepspeed), deepspeed)
    begin = _carry(inputs, batch, config, training)
    # Without ZeRO each process has all states, and the mini-batches don't depend on their number.
    candidates = working_dir.find_interrupted(run, begin.training, any_size=training.zero_stage is None)
    interrupted = (
        (path, begin.training.model_copy(update={"data_digest": before.data_digest}))
        for path, before in candidates
        if before.carried == begin.training.carried
    )
    start = find_resumable(folder, interrupted) or begin
    argv: tuple[str, ...] = (str(python), "-m", MODULE, LAUNCH_FILE)
    if placement.world_size > 1:
        argv = torchrun_command(python, MODULE, LAUNCH_FILE, placement)
    env = trainer_env(settings, placement.device, batch.model, folder)
    steps, critic = total_steps(settings.rl, batch, webrl=webrl), _has_critic(config)
    model = footprint.model_tensors(config["model"]["path"])
    on_gpu = model and placement.device == "cuda"
    return build_plan(
        inputs,
        data,
        TrainerLaunch(python, argv, config, LAUNCH_FILE, placement, env, deepspeed=deepspeed),
        start,
        steps,
        record={"objective": config.get("webrl", {}), "adapter": adapter.adapter if adapter else None}
        | ({"reference": began.name} if began and not webrl and settings.rl.has_reference else {}),
        disk_bytes=footprint.needed_for_rl(model, config, steps, networks=1 + critic),
        memory=rl_memory(model, config, deepspeed, placement.world_size, critic=critic) if on_gpu else None,
    )


def check_policy_gradient(settings: Settings) -> None:
    """Raise `SettingsError` for filters and models that no policy gradient trains on.

    Filters select steps to imitate, a batch has all episodes. A model whose `config.json` is here is refused now, not
    by the trainer after the rollouts.
    """
    name, model = settings.train.algorithm, settings.policy_config.base_model
    changed = settings.filters.model_dump(exclude_defaults=True)
    if changed and not settings.loop.demonstration_iterations:
        key = next(iter(changed))
        default = json.dumps(FilterSettings().model_dump(mode="json")[key])
        raise SettingsError(
            f"filters.{key}: train.algorithm={name} trains on all episodes of an iteration",
            hint=f"-s filters.{key}={default}, and select the tasks in tasks.train",
        )
    folder = find_model_folder(model)
    config = read_optional_object(folder / "config.json") if folder else {}
    problem, instead = find_unfit(config, packed=settings.rl.model.use_remove_padding)
    if problem:
        raise SettingsError(f"train.algorithm={name}: {model}: {problem}", hint=f"-s {instead} trains it")


def check_settings(settings: Settings) -> None:
    """Raise `SettingsError` as `check_policy_gradient`, and for a greedy baseline without greedy episodes."""
    check_policy_gradient(settings)
    name = settings.train.algorithm
    if ESTIMATORS.find(name).needs_greedy and not settings.agent.greedy_chain:
        raise SettingsError(
            f"train.algorithm {name} compares with a greedy episode: it needs agent.greedy_chain=true",
            hint="-s agent.greedy_chain=true",
        )


def _trainer_config(
    inputs: PlanInputs, batch: RlData, adapter: AdapterStart | None, began: Checkpoint | None, *, webrl: bool
) -> dict[str, Any]:
    """Return the trainer's configuration: the settings `rl`, and paths and values of the run."""
    run, settings, newest = inputs.run, inputs.settings, checkpoints.current(inputs.run)
    config: dict[str, Any] = settings.rl.model_dump(mode="json", exclude={"data", "replay", "webrl"})
    kind = algorithm(run, settings)
    # the base model's is not 0 in a run that imported the episodes of earlier versions
    first = began.version if began else checkpoints.version(replace(run, newest=-1))
    config["data"] = str(run.rl_data.resolve())
    if config["actor"]["loss_agg_mode"] == "seq-mean-token-sum-norm" and config["actor"]["loss_scale_factor"] is None:
        config["actor"]["loss_scale_factor"] = settings.policy_config.max_new_tokens
    config["model"]["path"] = batch.model
    config["model"]["trust_remote_code"] = settings.policy_config.trust_remote_code
    if adapter is not None and adapter.folder is not None:
        config["model"] |= {"path": adapter.model, "adapter": str(adapter.folder)}
    if webrl:
        config["webrl"] = settings.rl.webrl.model_dump(mode="json")
    else:
        config["algorithm"]["adv_estimator"] = kind
        config["plugins"] = portable_plugins(settings.plugins)
    folder = working_dir.partial_folder(run, batch.model_name).resolve()
    config["trainer"] |= {"output_dir": str(folder), "seed": settings.seed}
    if config["trainer"]["deepspeed"] is not None:
        config["trainer"]["deepspeed"] = str(find_deepspeed_file(config["trainer"]["deepspeed"], DEEPSPEED_SETTING))
    if config["trainer"]["critic_warmup"]:
        config["trainer"]["critic_warmup"] += first
    if newest and newest.version > first:
        if not webrl and settings.rl.has_reference:  # WebRL's is the policy at the start of each training
            config["ref"]["path"] = config["ref"]["path"] or _weights(run, settings, began)
        _go_on(config, settings, newest, checkpoints.folder(run, newest), kind)
    if config["critic"]["path"] is None and "adapter" in config["model"] and _has_critic(config):
        config["critic"]["path"] = batch.model  # a new critic starts from the policy, not from the adapter's base model
    return config


def _go_on(config: dict[str, Any], settings: Settings, newest: Checkpoint, parent: Path, kind: str) -> None:
    """Continue with the previous training's critic and KL coefficient.

    `rl.critic.path` is the first critic. As that of each training, it would begin anew without carried states, and have
    the adapter of another one with them.
    """
    if newest.algorithm == kind and (parent / CRITIC).is_dir():
        config["critic"]["path"] = str(parent / CRITIC)
    if config["algorithm"]["kl_ctrl"]["type"] == "adaptive":
        state = working_dir.trainer_state(parent) or {}
        config["algorithm"]["kl_ctrl"]["kl_coef"] = state.get("kl_coef", settings.rl.algorithm.kl_ctrl.kl_coef)


def _plan_adapter(run: RunDir, settings: Settings, newest: Checkpoint | None, *, webrl: bool) -> AdapterStart | None:
    """Return the LoRA adapter that is trained; None without one.

    WebRL's reference is the model at the start of each training, with the adapter disabled, so each adapter is new.
    """
    model = settings.rl.model
    if not model.lora_rank:
        return None
    wanted = LoraAdapter(
        base="",
        rank=model.lora_rank,
        alpha=model.lora_alpha,
        targets=model.target_modules,
        vision=not model.freeze_vision_tower,
    )
    renew = webrl or newest is None or not _is_ours(newest.algorithm)
    return plan_adapter(run, settings, wanted, renew=renew)


def total_steps(rl: RlSettings, batch: RlData, *, webrl: bool = False) -> int:
    """Return the optimizer steps that the trainer will make."""
    samples = batch.rows if webrl else batch.trained
    epochs = rl.actor.ppo_epochs + (when(webrl, rl.webrl.critic_epochs))
    return max(1, math.ceil(samples / (rl.actor.ppo_mini_batch_size or samples))) * epochs


def _is_ours(name: str) -> bool:
    """Whether this module's backends train by an algorithm; one that is no longer registered is foreign."""
    return name in ESTIMATORS.names() or (name in BACKENDS.names() and BACKENDS.find(name) is WEBRL)


def _has_critic(config: dict[str, Any]) -> bool:
    return "webrl" in config or ESTIMATORS.find(config["algorithm"]["adv_estimator"]).needs_critic


def _weights(run: RunDir, settings: Settings, began: Checkpoint | None) -> str:
    """Return the model that is the reference. Raises `MissingStageError` when its weights were removed."""
    if began is None:
        return settings.policy_config.base_model
    if not began.weights:
        raise MissingStageError(
            f"{began.name}: the reference policy's weights were removed (train.keep_weights)",
            hint="-s rl.ref.path=FOLDER names another reference",
        )
    return str(checkpoints.folder(run, began).resolve())


def _digest(run: RunDir, config: dict[str, Any], deepspeed: dict[str, Any] | None) -> tuple[str, str]:
    """Return the SHA-256 of all settings that change the result of the training."""
    kept = {name: value for name, value in config.items() if name not in PLACES}
    kept["trainer"] = {name: value for name, value in config["trainer"].items() if name not in PLACES}
    former = {**kept, "trainer": {"deepspeed": config["trainer"]["deepspeed"], **kept["trainer"]}}
    return working_dir.digest_options(run, [kept, deepspeed], [former, deepspeed])


def _carry(inputs: PlanInputs, batch: RlData, config: dict[str, Any], training: TrainingIdentity) -> TrainingStart:
    """Return the start from the parent's exact weights and moments, which `config` then names, or a fresh one."""
    if (newest := checkpoints.current(inputs.run)) is None:
        base = Path(batch.model)
        reason = f"{base.name} is a base model; only a run's own policy gradients go on with their states"
        return TrainingStart(training, note=when(has_optimizer_states(base), fresh_note(reason)))
    folder = checkpoints.folder(inputs.run, newest)
    if reason := _why_not_carried(inputs, newest, folder, config, training):
        return TrainingStart(training, note=fresh_note(reason))
    config["trainer"]["carry_state"] = str(folder / working_dir.RL_STATE)
    return TrainingStart(training.model_copy(update={"carried": True}), "carried", folder)


def _why_not_carried(
    inputs: PlanInputs, newest: Checkpoint, folder: Path, config: dict[str, Any], training: TrainingIdentity
) -> str:
    settings, kind = inputs.settings, algorithm(inputs.run, inputs.settings)
    if not settings.train.keep_optimizer_state:
        return "train.keep_optimizer_state is off"
    if settings.rl.model.lora_rank and "adapter" not in config["model"]:
        return "the adapter is new" + when(newest.adapter, f", {folder.name} holds the one before in its weights")
    if newest.adapter and not settings.rl.model.lora_rank:
        return f"of {folder.name} only a LoRA adapter was trained"
    states = folder / working_dir.RL_STATE
    before = working_dir.read_training(folder)
    if before is None or not (states / "actor").is_dir():
        return f"{folder.name} has no states of a policy gradient's training"
    size, stage = before.world_size, before.zero_stage
    if reason := working_dir.why_states_differ(folder.name, training, zero_stage=stage, processes=size):
        return reason
    if _has_critic(config) and not (newest.algorithm == kind and (states / CRITIC).is_dir()):
        return f"{folder.name} was trained without the critic of {kind}"
    return ""


def estimate_memory(
    settings: Settings, model: list[Tensor], deepspeed: dict[str, Any] | None, processes: int, *, webrl: bool = False
) -> TrainingMemory:
    """Return the memory of a training without activations; with a critic if the algorithm has one."""
    options = settings.rl.model_dump(mode="json", exclude=set() if webrl else {"webrl"})
    critic = webrl or ESTIMATORS.find(settings.train.algorithm).needs_critic
    return rl_memory(model, options, deepspeed, processes, critic=critic)


# Serves every advantage estimator.
POLICY_GRADIENT = TrainingBackend(
    plan_rl,
    "batch",
    check=check_settings,
    deepspeed_setting=DEEPSPEED_SETTING,
    # vLLM applies no adapter to a vision tower
    adapter_rank=lambda settings: when(settings.rl.model.freeze_vision_tower, settings.rl.model.lora_rank),
    estimate_memory=estimate_memory,
)
# Its adapter is new in each training and starts from a merged model, so none can be served by name.
WEBRL = TrainingBackend(
    functools.partial(plan_rl, webrl=True),
    "transitions",
    check=check_policy_gradient,
    deepspeed_setting=DEEPSPEED_SETTING,
    estimate_memory=functools.partial(estimate_memory, webrl=True),
)
