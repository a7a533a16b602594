"""Plans a training from the run's files; `--dry-run` prints the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from webgym_cli.config.deepspeed import zero_stage
from webgym_cli.config.model import Settings
from webgym_cli.records.dataset import TrainingData
from webgym_cli.store.checkpoints import algorithm
from webgym_cli.store.run import RunDir
from webgym_cli.train import working_dir
from webgym_cli.train.backend import PlanInputs
from webgym_cli.train.process_env import count_processes, refuse_torchrun_variables
from webgym_cli.train.training_plan import Placement, TrainerLaunch, TrainPlan
from webgym_cli.util.optional import map_known, when
from webgym_cli.venvs.locate import resolve_device


def find_placement(settings: Settings, environ: Mapping[str, str]) -> Placement:
    """Return the number of processes and nodes for the settings.

    Raises `UsageError`: see `count_processes`, `open_cluster` and `refuse_torchrun_variables`.
    """
    refuse_torchrun_variables(environ)
    device = resolve_device(settings.venvs.device)
    local = count_processes(settings, device, environ)
    if settings.train.executor == "local":
        return Placement(device, local)
    if settings.train.nodes is not None:
        return Placement(device, local, settings.train.nodes)
    from webgym_cli.jobs.ray_cluster import open_cluster

    with open_cluster(settings.rollout) as cluster:
        return Placement(device, local, 1 + len(cluster.nodes(gpus=when(device == "cuda", local), others=True)))


def plan_fresh(
    inputs: PlanInputs,
    data: TrainingData,
    launch: TrainerLaunch,
    config_digest: str,
    total_steps: int = 1,
    **more: Any,
) -> TrainPlan:
    """Return the plan of a training with a new optimizer; `more`: further fields of the plan."""
    run, settings = inputs.run, inputs.settings
    identity = working_dir.TrainingIdentity(
        data_digest=data.digest,
        config_digest=config_digest,
        parent=data.parent,
        carried=False,
        world_size=launch.placement.world_size,
        zero_stage=map_known(zero_stage, launch.deepspeed),
    )
    folder, limit = working_dir.partial_folder(run, data.name), settings.train.time_limit_minutes * 60
    return TrainPlan(data, algorithm(run, settings), folder, launch, identity, total_steps, limit, **more)


def continue_interrupted(
    plan: TrainPlan,
    interrupted: Iterable[tuple[Path, working_dir.TrainingIdentity]],
    resume: Callable[[TrainPlan, Path], TrainPlan | None],
) -> TrainPlan | None:
    """Return the plan that resumes the first resumable of some interrupted trainings; None without one.

    `resume` returns the plan that resumes from a folder's states, or None if they are unusable.
    """
    for folder, before in interrupted:
        taken = replace(plan, adopted=folder if folder != plan.folder else None, training=before)
        if done := working_dir.finished_checkpoint(folder):
            note = "all steps of the interrupted training were made: only its publication is missing"
            return replace(taken, mode="finished", source=plan.folder / done.name, notes=(*plan.notes, note))
        if continued := resume(taken, folder):
            return replace(continued, mode="continued")
    return None


def resume_from(plan: TrainPlan, checkpoint: Path | None) -> TrainPlan | None:
    """Return the plan that resumes from a checkpoint by HuggingFace's `resume_from_checkpoint`."""
    if checkpoint is None:
        return None
    here = plan.folder / checkpoint.name
    # restored moments need no second warm-up
    overrides = plan.launch.overrides | {"resume_from_checkpoint": str(here)}
    if plan.training.carried:
        overrides["warmup_steps"] = 0
    note = f"goes on after step {working_dir.step_of(checkpoint)} of the interrupted training"
    launch = replace(plan.launch, overrides=overrides)
    return replace(plan, source=here, launch=launch, notes=(*plan.notes, note))


def note_other_processes(plan: TrainPlan, run: RunDir) -> TrainPlan:
    """Return the plan, with a note if it starts over because another number of processes was interrupted."""
    if plan.mode in working_dir.KEEPING:
        return plan
    now = plan.training.world_size
    notes = tuple(
        f"{folder.name} was interrupted with {before.world_size} process(es) and can't go on with {now}: the training "
        f"starts over, and that folder is removed. To go on with it, train with {before.world_size}"
        for folder, before in working_dir.find_interrupted(run, plan.training, any_size=True)
        if before.world_size != now
    )
    return replace(plan, notes=plan.notes + notes)
