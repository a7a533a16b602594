"""LLaMA-Factory as a training backend: plans its training on the prepared samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.config.shipped import find_deepspeed_file, read_deepspeed_file
from webgym_cli.errors import SettingsError, UsageError, VenvError
from webgym_cli.records.checkpoint import LoraAdapter
from webgym_cli.records.dataset import DEEPSPEED, Prepared, TrainingData
from webgym_cli.store import checkpoints
from webgym_cli.store.adapters import plan_adapter, read_adapter
from webgym_cli.store.prepared import find_edited_deepspeed, read_data_digest, read_prepared
from webgym_cli.store.run import RunDir, run_id
from webgym_cli.store.weights import Tensor
from webgym_cli.train import footprint, working_dir
from webgym_cli.train.backend import (
    Placement,
    PlanInputs,
    TrainerLaunch,
    TrainingBackend,
    TrainingStart,
    TrainPlan,
    fresh_note,
)
from webgym_cli.train.llamafactory import dataset
from webgym_cli.train.plan import (
    build_plan,
    find_placement,
    find_resumable,
    identify,
    plan_reporting,
    torchrun_command,
    trainer_env,
)
from webgym_cli.train.working_dir import (
    OPTIMIZER_STATES,
    TrainingIdentity,
    has_moments,
    has_optimizer_states,
    read_training,
    why_states_differ,
)
from webgym_cli.util.optional import when
from webgym_cli.util.registry import lazy
from webgym_cli.venvs.locate import role_python
from webgym_cli.venvs.wandb_mode import wandb_run_variables

CLI = "llamafactory-cli"
# What torchrun runs in each process. `llamafactory-cli` would import torch and transformers once more to call torchrun.
LAUNCHER = "llamafactory.launcher"
# The configuration that is run: `train_config.yaml` and the overrides.
LAUNCH_FILE = "launch.yaml"
# Keys whose settings other steps read too: in `train.extra` they cut off answers, warmed up carried moments, scaled
# pictures as no server does, and began each training with the same model.
SHARED = {
    "cutoff_len": "algorithm_config.cutoff_len",
    "warmup_ratio": "algorithm_config.warmup_steps",
    "model_name_or_path": "policy_config.base_model",
    "image_min_pixels": "image.image_min_pixels",
    "image_max_pixels": "image.image_max_pixels",
}
# LLaMA-Factory sets them for its own torchrun.
CUDA_ENV = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "TORCH_NCCL_AVOID_RECORD_STREAMS": "1"}


def plan_sft(inputs: PlanInputs) -> TrainPlan:
    """Return the plan for training on the prepared dataset.

    Raises `MissingStageError` without a dataset for the current policy, `VenvError` without LLaMA-Factory, `UsageError`
    for damaged files.
    """
    run, settings = inputs.run, inputs.settings
    prepared = read_prepared(run)
    config = dataset.read_train_config(run, planned := inputs.prepared.plan_config(run, settings))
    placement = find_placement(settings, inputs.environ)
    deepspeed = _read_deepspeed(inputs, prepared, config, is_planned=planned is not None)
    model, newest = str(config["model_name_or_path"]), checkpoints.current(run)
    parent, digest = newest.name if newest else prepared.parent, read_data_digest(run, prepared)
    data = TrainingData(prepared.model_name, prepared.iteration, parent, model, digest)
    training = identify(data, placement, dataset.digest_config(run, config | {"deepspeed": deepspeed}), deepspeed)
    folder, world = working_dir.partial_folder(run, data.name), placement.world_size
    start = find_resumable(
        folder,
        _find_interrupted(run, training, data.name),
        lambda path: working_dir.newest_complete(path, world_size=world, resumable=True),
    ) or _carry(run, settings, config, data, training)
    launch, notes = _plan_launch(inputs, config, folder, placement, deepspeed)
    if digest != prepared.data_digest:
        notes += (f"{run.dataset}: the samples were edited by hand: trained as they stand",)
    steps = dataset.total_steps(config, prepared.train_samples, world)
    tensors, carried = footprint.model_tensors(model), start.mode == "carried"
    on_gpu = tensors and placement.device == "cuda"
    return build_plan(
        inputs,
        data,
        launch,
        start,
        steps,
        notes,
        record={"adapter": _find_adapter(run, settings, config)},
        disk_bytes=footprint.needed_for_sft(tensors, config, training.zero_stage, steps, carried=carried),
        memory=footprint.configured_memory(tensors, config, deepspeed, world) if on_gpu else None,
    )


def refuse_extra(settings: Settings) -> None:
    """Raise `SettingsError` for keys of `train.extra` that have a setting of their own."""
    for key in filter(SHARED.__contains__, settings.train.extra):
        raise SettingsError(
            f"train.extra.{key}: LLaMA-Factory alone would read it, other steps read {SHARED[key]}",
            hint=f"leave it out, and -s {SHARED[key]}={settings.train.extra[key]}",
        )


def refuse_pattern(run: RunDir) -> None:
    """Raise `UsageError` if the run's path is a pattern: training would fail, or read another folder's samples."""
    if set(str(run.root.resolve())) & set("[*?"):
        raise UsageError(f"{run.root}: LLaMA-Factory reads [, * and ? as a pattern of files", hint="rename it (mv)")


def _plan_launch(
    inputs: PlanInputs, config: dict[str, Any], folder: Path, placement: Placement, deepspeed: dict[str, Any] | None
) -> tuple[TrainerLaunch, tuple[str, ...]]:
    """Return how LLaMA-Factory is started, and remarks. Raises `VenvError` without it."""
    settings = inputs.settings
    python = role_python(settings, "train")
    cli = python.parent / CLI
    if not cli.is_file():
        raise VenvError(f"{cli}: LLaMA-Factory is not installed there", hint="webgym setup --role train")
    env = trainer_env(settings, placement.device, str(config["model_name_or_path"]), folder)
    argv: tuple[str, ...] = (str(cli), "train", LAUNCH_FILE)
    # LLaMA-Factory runs DeepSpeed under torchrun only; alone, it would start a process for each GPU that it sees.
    if deepspeed is not None or placement.world_size > 1 or placement.device == "cuda":
        argv = torchrun_command(python, LAUNCHER, LAUNCH_FILE, placement)
        env |= when(placement.device == "cuda", CUDA_ENV)
    wandb_env = wandb_run_variables(settings, run_id(inputs.run, settings)) | dataset.read_wandb_env(inputs.run)
    reporting, overrides, remark = plan_reporting(settings, config, wandb_env, inputs.environ, python)
    overrides = {"output_dir": str(folder)} | overrides
    if config.get("save_strategy") in ("no", "best"):  # the last step's checkpoint is the policy
        overrides["save_strategy"] = "steps"
    launch = TrainerLaunch(python, argv, config, LAUNCH_FILE, placement, env | reporting, overrides, deepspeed)
    return launch, when(remark, (remark,))


def _read_deepspeed(
    inputs: PlanInputs, prepared: Prepared, config: dict[str, Any], *, is_planned: bool
) -> dict[str, Any] | None:
    """Return the DeepSpeed settings of the training: of the file that will be written at its start, if one will."""
    name, folder = inputs.settings.algorithm_config.deepspeed_config_filename, inputs.run.dataset
    is_ours = config.get("deepspeed") == str(folder.resolve() / DEEPSPEED)
    if name is not None and is_ours and is_planned and not find_edited_deepspeed(folder, prepared):
        config = config | {"deepspeed": str(find_deepspeed_file(name))}
    return read_deepspeed_file(config.get("deepspeed"))


def _find_adapter(run: RunDir, settings: Settings, config: dict[str, Any]) -> LoraAdapter | None:
    """Return the adapter that will be trained; None if the user set another starting point."""
    if (wanted := read_adapter(config)) is None:
        return None
    start, named = plan_adapter(run, settings, wanted), config.get("adapter_name_or_path")
    if named != (start.folder and str(start.folder)):
        return None
    return start.adapter


def _find_interrupted(run: RunDir, training: TrainingIdentity, name: str) -> Iterator[tuple[Path, TrainingIdentity]]:
    """Yield the working folders that hold a training of exactly this dataset with these settings."""
    yield from working_dir.find_interrupted(run, training)
    by_hand = run.checkpoints / name  # `llamafactory-cli train train_config.yaml`, typed by a person
    if by_hand.is_dir():
        usable = working_dir.newest_complete(by_hand, world_size=training.world_size, resumable=True)
        if usable is None and working_dir.finished_checkpoint(by_hand) is None:
            raise UsageError(
                f"{by_hand}: is in the way: it is no finished training, and none that can be gone on with",
                hint="move it away, then run the same command again",
            )
        yield by_hand, training


def _carry(
    run: RunDir, settings: Settings, config: dict[str, Any], data: TrainingData, training: TrainingIdentity
) -> TrainingStart:
    """Return the start with the optimizer states of the current policy, or a fresh one with the reason."""
    newest = checkpoints.current(run)
    # A base model may be a policy of WebGym's, or of another run, with the states of its training.
    source = checkpoints.folder(run, newest) if newest else Path(data.model)
    if newest is None and not has_optimizer_states(source):
        return TrainingStart(training)
    reason = "train.keep_optimizer_state is off"
    if config.get("finetuning_type") == "lora":
        reason = "an adapter's weights are kept, its moments are not"
    elif settings.train.keep_optimizer_state:
        reason = why_not_carried(source, training)
    if reason:
        return TrainingStart(training, note=fresh_note(reason))
    # carried moments need no second warm-up
    overrides = {"resume_from_checkpoint": str(run.checkpoints / f"{data.name}.start"), "warmup_steps": 0}
    carried = training.model_copy(update={"carried": True})
    return TrainingStart(carried, "carried", source, overrides=overrides)


def why_not_carried(folder: Path, training: TrainingIdentity) -> str:
    """Return the reason why a training can't start from this checkpoint's optimizer states; empty if it can."""
    if not has_moments(folder):
        return f"{folder.name} has no optimizer states of LLaMA-Factory"
    before, shards = read_training(folder), len(list(folder.glob(OPTIMIZER_STATES)))
    stage = (training.zero_stage or 0) if shards else None
    if before is not None:
        stage = before.zero_stage
    return why_states_differ(folder.name, training, zero_stage=stage, processes=shards)


def estimate_memory(
    settings: Settings, model: list[Tensor], deepspeed: dict[str, Any] | None, processes: int
) -> footprint.TrainingMemory:
    """Return the memory of a training without activations. The settings have LLaMA-Factory's names."""
    return footprint.configured_memory(model, settings.algorithm_config.model_dump(mode="json"), deepspeed, processes)


LLAMAFACTORY = TrainingBackend(
    plan_sft,
    "dataset",
    check=refuse_extra,
    check_run=refuse_pattern,
    check_data=lazy("webgym_cli.train.llamafactory.rendering:require_same_rendering"),
    build_start=lazy("webgym_cli.train.llamafactory.optimizer_carryover:build_start"),
    export=lazy("webgym_cli.train.llamafactory.lora_merge:export"),
    deepspeed_setting="algorithm_config.deepspeed_config_filename",
    # vLLM applies no adapter to a vision tower.
    adapter_rank=lambda settings: when(
        settings.algorithm_config.finetuning_type == "lora" and settings.algorithm_config.freeze_vision_tower,
        settings.algorithm_config.lora_rank,
    ),
    estimate_memory=estimate_memory,
)
