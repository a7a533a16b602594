"""Plans a training from the run's files; `--dry-run` prints the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from webgym_cli.config.deepspeed import zero_stage
from webgym_cli.config.model import Settings
from webgym_cli.records.dataset import TrainingData
from webgym_cli.store.checkpoints import algorithm
from webgym_cli.store.run import RunDir
from webgym_cli.train import working_dir
from webgym_cli.train.backend import Placement, PlanInputs, TrainerLaunch, TrainingStart, TrainPlan
from webgym_cli.train.process_env import count_processes, refuse_torchrun_variables
from webgym_cli.train.working_dir import TrainingIdentity
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


def identify(
    data: TrainingData, placement: Placement, config_digest: str, deepspeed: dict[str, Any] | None = None
) -> TrainingIdentity:
    """Return the identity of a training with a new optimizer."""
    return TrainingIdentity(
        data_digest=data.digest,
        config_digest=config_digest,
        parent=data.parent,
        carried=False,
        world_size=placement.world_size,
        zero_stage=map_known(zero_stage, deepspeed),
    )


def find_resumable(
    folder: Path,
    interrupted: Iterable[tuple[Path, TrainingIdentity]],
    find_checkpoint: Callable[[Path], Path | None] | None = None,
) -> TrainingStart | None:
    """Return the start of a training in a folder from the first resumable of some interrupted ones; None without one.

    `find_checkpoint` returns the checkpoint for HuggingFace's `resume_from_checkpoint`, None if there is no usable one;
    without it the trainer itself finds its states.
    """
    for path, before in interrupted:
        adopted = path if path != folder else None
        if done := working_dir.finished_checkpoint(path):
            note = "all steps of the interrupted training were made: only its publication is missing"
            return TrainingStart(before, "finished", folder / done.name, adopted, note=note)
        note = "goes on after step {} of the interrupted training"
        if find_checkpoint is None:
            steps = (state.name.removeprefix("state-") for state in path.glob("state-*"))
            newest = max((int(step) for step in steps if step.isdigit()), default=0)
            return TrainingStart(before, "continued", adopted=adopted, note=note.format(newest))
        if checkpoint := find_checkpoint(path):
            here = folder / checkpoint.name
            # restored moments need no second warm-up
            overrides = {"resume_from_checkpoint": str(here), **when(before.carried, {"warmup_steps": 0})}
            words = note.format(working_dir.step_of(checkpoint))
            return TrainingStart(before, "continued", here, adopted, overrides, words)
    return None


def build_plan(
    inputs: PlanInputs,
    data: TrainingData,
    launch: TrainerLaunch,
    start: TrainingStart,
    total_steps: int = 1,
    notes: Iterable[str] = (),
    **more: Any,
) -> TrainPlan:
    """Return the plan of a training; `more`: further fields of the plan."""
    run, settings = inputs.run, inputs.settings
    return TrainPlan(
        data=data,
        algorithm=algorithm(run, settings),
        folder=working_dir.partial_folder(run, data.name),
        launch=launch,
        start=start,
        total_steps=total_steps,
        time_limit=settings.train.time_limit_minutes * 60,
        notes=(*notes, *when(start.note, (start.note,)), *_note_other_processes(run, start)),
        **more,
    )


def _note_other_processes(run: RunDir, start: TrainingStart) -> Iterator[str]:
    """Yield notes if the training starts over because another number of processes was interrupted."""
    now = start.training.world_size
    for folder, before in working_dir.find_interrupted(run, start.training, any_size=True):
        if before.world_size != now and not start.keeps_folder:
            yield (
                f"{folder.name} was interrupted with {before.world_size} process(es) and can't go on with {now}: the "
                f"training starts over, and that folder is removed. To go on with it, train with {before.world_size}"
            )
