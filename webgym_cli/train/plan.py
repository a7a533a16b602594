"""Plans a training from the run's files (`--dry-run` prints it): start, processes, environment and reporting."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.config.shipped import zero_stage
from webgym_cli.errors import UsageError
from webgym_cli.jobs import devices
from webgym_cli.records.dataset import TrainingData
from webgym_cli.store.checkpoints import algorithm
from webgym_cli.store.run import RunDir
from webgym_cli.train import working_dir
from webgym_cli.train.backend import Placement, PlanInputs, TrainerLaunch, TrainingStart, TrainPlan
from webgym_cli.train.working_dir import TrainingIdentity
from webgym_cli.util.json_values import as_list
from webgym_cli.util.optional import map_known, when
from webgym_cli.venvs.locate import resolve_device, trainer_environ
from webgym_cli.venvs.wandb_mode import wandb_environment, wandb_mode, with_key


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
    data: TrainingData, placement: Placement, digests: tuple[str, str], deepspeed: dict[str, Any] | None = None
) -> TrainingIdentity:
    """Return the identity of a training with a new optimizer. `digests`: those of `digest_options`."""
    return TrainingIdentity(
        data_digest=data.digest,
        config_digest=digests[0],
        former_digest=digests[1],
        former_data=data.former_digest,
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
        # where the digest leaves out the rewards, only the trainer knows whether its steps were made with them
        has_rewards = before.data_digest != before.former_data
        if has_rewards and (done := working_dir.finished_checkpoint(path)):
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


def count_processes(settings: Settings, device: str, environ: Mapping[str, str]) -> int:
    """Return the trainer's processes on this machine: the setting, else one for each GPU it can use, one on CPU.

    Raises `UsageError` for a `CUDA_VISIBLE_DEVICES` with too few GPUs or invalid entries.
    """
    wanted = settings.train.nproc_per_node
    if device == "cpu":
        return wanted or 1
    environ = {**environ, **devices.restrict(environ, settings.train.gpus, "train.gpus")}
    count = devices.usable(environ)
    if count == 0:
        raise UsageError(
            f"{devices.VARIABLE}={environ.get(devices.VARIABLE)}: it hides every GPU from the trainer",
            hint=f"unset {devices.VARIABLE}, or name the GPUs to train on",
        )
    if wanted and count and wanted > count:
        raise UsageError(
            f"train.nproc_per_node: {wanted} processes need as many GPUs, {count} can be used",
            hint=f"-s train.nproc_per_node=null takes every GPU that {devices.VARIABLE} leaves",
        )
    return wanted or count or 1


def refuse_torchrun_variables(environ: Mapping[str, str]) -> None:
    """Raise `UsageError` if `NNODES` names several nodes: torchrun would wait for them, but nothing starts it there."""
    count = environ.get("NNODES", "").strip()
    if count not in ("", "1"):
        raise UsageError(
            f"NNODES is {count}, which webgym does not read: one command trains on all nodes of a Ray cluster",
            hint=f"unset NNODES; on each node: ray symmetric-run --address $MASTER_ADDR:6379 --min-nodes {count} -- "
            "webgym ... -s train.executor=ray (docs/many-nodes.md)",
        )


def torchrun_command(python: Path, module: str, launch_file: str, placement: Placement) -> tuple[str, ...]:
    """Return the command by which torchrun runs a module in a node's processes. Several nodes meet by variables."""
    alone = when(placement.nodes == 1, ("--standalone", "--nproc_per_node", str(placement.local)))
    return (str(python), "-m", "torch.distributed.run", *alone, "-m", module, launch_file)


def trainer_env(settings: Settings, device: str, model: str, folder: Path) -> dict[str, str]:
    """Return the variables that we add to the inherited environment of a training in a folder; nothing secret."""
    env = {
        "PYTHONUNBUFFERED": "1",
        # beside the training, so that tokenized samples don't accumulate in the home folder
        "HF_DATASETS_CACHE": str(folder / "datasets_cache"),
        "TOKENIZERS_PARALLELISM": "false",
        "PET_LOG_DIR": os.devnull,  # torchrun would leave a folder in TMPDIR after each training
    }
    if device == "cpu":
        env["OMP_NUM_THREADS"] = "1"
    elif settings.train.gpus:
        env[devices.VARIABLE] = ",".join(settings.train.gpus)
    if Path(model).is_dir():
        env["HF_HUB_OFFLINE"] = "1"
    return env


def plan_reporting(
    settings: Settings, config: dict[str, Any], wandb_env: Mapping[str, str], environ: Mapping[str, str], python: Path
) -> tuple[dict[str, str], dict[str, Any], str]:
    """Return variables, overrides and a remark about where the training is reported to."""
    wanted = as_list(config.get("report_to") or [])
    others = [name for name in wanted if name != "wandb"]
    if "wandb" not in wanted:
        return {}, {}, ""
    mode, reason = wandb_mode(settings, environ)
    remark = when(mode == "disabled", f"{reason}: nothing is reported to Weights & Biases")
    if not remark and not any(python.parent.parent.glob("lib/python*/site-packages/wandb/__init__.py")):
        remark = "wandb is not installed in the train environment: nothing is reported to it"
    if remark:
        return {}, {"report_to": others or "none"}, remark
    env = {**wandb_env, **wandb_environment(mode, environ)}
    env["WANDB_FINISH_TIMEOUT"] = f"{settings.log_config.wait_seconds:g}"
    return env, {}, when(mode != "online", f"{reason}: Weights & Biases is kept offline, in the logs")


def report_offline(plan: TrainPlan) -> TrainPlan:
    """Return the plan with Weights & Biases offline: its server does not answer, and the trainer would wait for it."""
    env = plan.launch.env
    if env.get("WANDB_MODE") != "online":
        return plan
    note = "Weights & Biases does not answer: it is kept offline, in the logs"
    launch = replace(plan.launch, env=env | wandb_environment("offline", env))
    return replace(plan, launch=launch, notes=(*plan.notes, note))


def child_environment(env: Mapping[str, str], settings: Settings, python: Path) -> dict[str, str]:
    """Return the whole environment of the trainer, where `webgym_cli.trainer` can be imported.

    The key reaches it by inheritance, never through a file or flag.
    """
    return with_key(trainer_environ(python), settings) | dict(env)
