"""Plans LLaMA-Factory's training on the prepared samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from webgym_cli.config.deepspeed import read_deepspeed_file
from webgym_cli.config.model import Settings
from webgym_cli.config.shipped import find_deepspeed_file
from webgym_cli.errors import UsageError, VenvError
from webgym_cli.records.checkpoint import LoraAdapter
from webgym_cli.records.dataset import DEEPSPEED, Prepared, TrainingData
from webgym_cli.store import checkpoints
from webgym_cli.store.adapters import plan_adapter, read_adapter
from webgym_cli.store.prepared import find_edited_deepspeed, read_data_digest, read_prepared
from webgym_cli.store.run import RunDir
from webgym_cli.train import disk, process_env, working_dir
from webgym_cli.train.backend import PlanInputs
from webgym_cli.train.llamafactory import dataset
from webgym_cli.train.llamafactory.optimizer_carryover import why_not_carried
from webgym_cli.train.memory import configured_memory
from webgym_cli.train.plan import continue_interrupted, find_placement, plan_fresh, resume_from
from webgym_cli.train.training_plan import TrainerLaunch, TrainPlan, fresh_note
from webgym_cli.train.working_dir import has_optimizer_states
from webgym_cli.util.optional import when
from webgym_cli.venvs.locate import role_python

CLI = "llamafactory-cli"
# What torchrun runs in each process. `llamafactory-cli` would import torch and transformers once more to call torchrun.
LAUNCHER = "llamafactory.launcher"
# The configuration that is run: `train_config.yaml` and the overrides.
LAUNCH_FILE = "launch.yaml"
# Overrides with carried optimizer states: carried moments need no second warm-up.
CARRYING = ("resume_from_checkpoint", "warmup_steps")
# LLaMA-Factory sets them for its own torchrun.
CUDA_ENV = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "TORCH_NCCL_AVOID_RECORD_STREAMS": "1"}


def plan_sft(inputs: PlanInputs) -> TrainPlan:
    """Return the plan for training on the prepared dataset.

    Raises `MissingStageError` without a dataset for the current policy, `VenvError` without LLaMA-Factory, `UsageError`
    for damaged files.
    """
    run, settings = inputs.run, inputs.settings
    prepared = read_prepared(run)
    config = dataset.read_train_config(run, inputs.train_config)
    python = role_python(settings, "train")
    cli = python.parent / CLI
    if not cli.is_file():
        raise VenvError(f"{cli}: LLaMA-Factory is not installed there", hint="webgym setup --role train")
    base = _base(inputs, prepared, config, python)
    world = base.training.world_size
    plan = continue_interrupted(
        base,
        _find_interrupted(run, base),
        lambda plan, folder: resume_from(plan, working_dir.newest_complete(folder, world_size=world, resumable=True)),
    )
    plan = plan or _carry(run, settings, base)
    model = disk.model_tensors(plan.data.model) if plan.launch.placement.device == "cuda" else []
    memory = configured_memory(model, config, plan.launch.deepspeed, world) if model else None
    stage, carried = plan.training.zero_stage, plan.mode == "carried"
    needed = disk.needed_for_sft(config, stage, plan.total_steps, carried=carried)
    return replace(plan, disk_bytes=needed, memory=memory)


def _base(inputs: PlanInputs, prepared: Prepared, config: dict[str, Any], python: Path) -> TrainPlan:
    """Return the plan of a fresh training."""
    run, settings = inputs.run, inputs.settings
    placement, deepspeed = find_placement(settings, inputs.environ), _read_deepspeed(inputs, prepared, config)
    folder, model = working_dir.partial_folder(run, prepared.model_name), str(config["model_name_or_path"])
    env = process_env.trainer_env(settings, placement.device, model, folder)
    argv: tuple[str, ...] = (str(python.parent / CLI), "train", LAUNCH_FILE)
    if deepspeed is not None or placement.world_size > 1:  # LLaMA-Factory runs DeepSpeed under torchrun only
        argv = process_env.torchrun_command(
            python, LAUNCHER, LAUNCH_FILE, processes=placement.local, nodes=placement.nodes
        )
        if placement.device == "cuda":
            env |= CUDA_ENV
    wandb_env = dataset.read_wandb_env(run)
    reporting, overrides, remark = process_env.plan_reporting(settings, config, wandb_env, inputs.environ, python)
    overrides = {"output_dir": str(folder)} | overrides
    newest = checkpoints.current(run)
    parent, digest = newest.name if newest else prepared.parent, read_data_digest(run, prepared)
    notes = when(remark, [remark])
    if digest != prepared.data_digest:
        notes.append(f"{run.dataset}: the samples were edited by hand: trained as they stand")
    return plan_fresh(
        inputs,
        TrainingData(prepared.model_name, prepared.iteration, parent, model, digest),
        TrainerLaunch(python, argv, config, LAUNCH_FILE, placement, env | reporting, overrides, deepspeed),
        config_digest=dataset.config_digest(config | {"deepspeed": deepspeed}),
        total_steps=dataset.total_steps(config, prepared.train_samples, placement.world_size),
        record={"adapter": _find_adapter(run, settings, config)},
        notes=tuple(notes),
    )


def _read_deepspeed(inputs: PlanInputs, prepared: Prepared, config: dict[str, Any]) -> dict[str, Any] | None:
    """Return the DeepSpeed settings of the training: of the file that will be written at its start, if one will."""
    name, folder = inputs.settings.algorithm_config.deepspeed_config_filename, inputs.run.dataset
    is_ours = config.get("deepspeed") == str(folder.resolve() / DEEPSPEED)
    is_planned = inputs.train_config is not None and not find_edited_deepspeed(folder, prepared)
    if name is not None and is_ours and is_planned:
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


def _find_interrupted(run: RunDir, plan: TrainPlan) -> Iterator[tuple[Path, working_dir.TrainingIdentity]]:
    """Yield the working folders that hold a training of exactly this dataset with these settings."""
    yield from working_dir.find_interrupted(run, plan.training)
    by_hand = run.checkpoints / plan.data.name  # `llamafactory-cli train train_config.yaml`, typed by a person
    if by_hand.is_dir():
        usable = working_dir.newest_complete(by_hand, world_size=plan.training.world_size, resumable=True)
        if usable is None and working_dir.finished_checkpoint(by_hand) is None:
            raise UsageError(
                f"{by_hand}: is in the way: it is no finished training, and none that can be gone on with",
                hint="move it away, then run the same command again",
            )
        yield by_hand, plan.training


def _carry(run: RunDir, settings: Settings, plan: TrainPlan) -> TrainPlan:
    """Return the plan that starts with the optimizer states of the current policy, or the fresh one with the reason."""
    newest = checkpoints.current(run)
    # A base model may be a policy of WebGym's, or of another run, with the states of its training.
    source = checkpoints.folder(run, newest) if newest else Path(plan.data.model)
    if newest is None and not has_optimizer_states(source):
        return plan
    reason = "train.keep_optimizer_state is off"
    if plan.launch.config.get("finetuning_type") == "lora":
        reason = "an adapter's weights are kept, its moments are not"
    elif settings.train.keep_optimizer_state:
        reason = why_not_carried(source, plan.training)
    if reason:
        return replace(plan, notes=(*plan.notes, fresh_note(reason)))
    start = run.checkpoints / f"{plan.data.name}.start"
    training = plan.training.model_copy(update={"carried": True})
    overrides = plan.launch.overrides | {"resume_from_checkpoint": str(start), "warmup_steps": 0}
    launch = replace(plan.launch, overrides=overrides)
    return replace(plan, mode="carried", source=source, training=training, launch=launch)


def without_states(plan: TrainPlan, reason: str) -> TrainPlan:
    """Return a carried plan as a fresh one: the parent's weights with a new optimizer."""
    kept = {key: value for key, value in plan.launch.overrides.items() if key not in CARRYING}
    training = plan.training.model_copy(update={"carried": False})
    launch, notes = replace(plan.launch, overrides=kept), (*plan.notes, fresh_note(reason))
    return replace(plan, mode="fresh", source=None, training=training, launch=launch, notes=notes)
