"""Turns a finished training into the current policy, and removes what older checkpoints need no longer."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil

from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError
from webgym_cli.jobs.machine_time import MachineMeter
from webgym_cli.records.checkpoint import Checkpoint
from webgym_cli.store import checkpoints
from webgym_cli.store.adapters import ADAPTER
from webgym_cli.store.run import RunDir, now
from webgym_cli.store.weights import find_non_finite, have_same_weights, is_zero_adapter
from webgym_cli.train import working_dir
from webgym_cli.train.backend import TrainPlan
from webgym_cli.train.trainer_log import TRAINER_LOG, read_log
from webgym_cli.train.working_dir import RL_STATE, has_optimizer_states
from webgym_cli.util.files import disk_errors, write_json
from webgym_cli.util.optional import when

# Files, apart from the weights, that a server needs if the model has them.
SIDE_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)
# The image processor's settings: newer versions write the first only, which holds the others' content.
PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json")


def finished_checkpoint(plan: TrainPlan, log: Path) -> Path:
    """Return the checkpoint of the last step. Raises `JobError` when the training stopped early or diverged."""
    checkpoint = working_dir.newest_complete(plan.folder)
    state = working_dir.trainer_state(checkpoint) or {}
    lines = read_log(plan.folder / TRAINER_LOG)
    done = int(max([state.get("global_step", 0), *(line["current_steps"] for line in lines)]))
    total = int(state.get("max_steps") or next((line["total_steps"] for line in reversed(lines)), plan.total_steps))
    hint = f"read {log}, then run the same command again"
    if checkpoint is None or int(state["global_step"]) < total:
        kept = f"; its last whole checkpoint is of step {state['global_step']}" if checkpoint else ""
        raise JobError(f"the trainer ended after {done} of {total} steps{kept}; log: {log}", hint=hint, returncode=0)
    norms = [entry["grad_norm"] for entry in state.get("log_history", []) if "grad_norm" in entry]
    if norms and isinstance(norms[-1], float) and math.isnan(norms[-1]):
        shutil.rmtree(plan.folder, ignore_errors=True)  # resuming from here would diverge again
        raise JobError(
            f"the training diverged: the gradient became NaN; log: {log}",
            hint="lower algorithm_config.learning_rate, prepare again and train again",
            returncode=0,
        )
    return checkpoint


def check_weights(plan: TrainPlan, weights: Path, log: Path) -> str:
    """Return a note if the training changed nothing; empty if it did. Raises `JobError` for weights with NaN or inf."""
    adapter = weights / ADAPTER
    if tensor := find_non_finite(weights) or find_non_finite(adapter):
        shutil.rmtree(plan.folder, ignore_errors=True)  # resuming from here would diverge again
        raise JobError(
            f"the training diverged: the weights {tensor} hold NaN or infinite values; log: {log}",
            hint="lower the learning rate, prepare again and train again",
            returncode=0,
        )
    if (adapter.is_dir() and is_zero_adapter(adapter)) or have_same_weights(weights, Path(plan.data.model)):
        return f"the training changed nothing: its weights are those of {plan.data.model}; {_explain(plan)}"
    return ""


def _explain(plan: TrainPlan) -> str:
    """Return why a training changed nothing, by its log."""
    steps = [line for line in read_log(plan.folder / TRAINER_LOG) if "loss" in line]
    if steps and not any(line.get("lr") for line in steps):
        return "the learning rate was 0 in each step (warm-up)"
    # a critic's own steps have none
    norms = [line["actor/grad_norm"] for line in steps if "actor/grad_norm" in line]
    if not norms and any("critic/grad_norm" in line for line in steps):
        return "only the critic was trained (rl.trainer.critic_warmup)"
    if norms and not any(norms):
        return "each gradient was 0: were all rewards equal?"
    return "were its steps too small for the weights' number format?"


def publish(
    plan: TrainPlan, run: RunDir, settings: Settings, weights: Path, log_dir: Path, meter: MachineMeter
) -> Checkpoint:
    """Make a finished checkpoint the current policy, tidy up and return its record. Raises `StoreError`.

    `meter`: runs since the command took up this training.
    """
    with disk_errors(weights):
        # What is missing in the checkpoint is the training's, else that of the model that it started from.
        sources, wanted = [plan.folder, Path(plan.data.model)], list(SIDE_FILES)
        if not any((weights / name).is_file() for name in PROCESSOR_FILES):
            wanted += PROCESSOR_FILES
        for name in wanted:
            file = next((source / name for source in sources if (source / name).is_file()), None)
            if file and not (weights / name).exists():
                shutil.copyfile(file, weights / name)
        write_json(weights / working_dir.RECORD, plan.start.training.model_dump(mode="json"))
        (weights / "training_args.bin").unlink(missing_ok=True)  # a pickle that nothing reads
        _flush(weights)
        if (plan.folder / TRAINER_LOG).is_file():
            shutil.copyfile(plan.folder / TRAINER_LOG, log_dir / f"{plan.data.name}.{TRAINER_LOG}")
    checkpoint = record(plan, weights, meter, shared=settings.loop.mode == "async")
    checkpoints.publish(run, settings, weights, checkpoint)
    remove_leftovers(run)
    drop_old_states(run, settings.train.keep_checkpoints)
    drop_old_weights(run, settings.train.keep_weights)
    return checkpoint


def record(plan: TrainPlan, weights: Path, meter: MachineMeter, *, shared: bool) -> Checkpoint:
    """Return the record of finished weights. `shared`: episodes run meanwhile, and count the processor time."""
    placement = plan.launch.placement
    state: dict[str, Any] = working_dir.trainer_state(weights) or {}
    lines = read_log(plan.folder / TRAINER_LOG)
    losses = [line["loss"] for line in lines if "loss" in line]
    newest = next(reversed(lines), {})
    metrics = {name: value for name, value in newest.items() if "/" in name}
    return Checkpoint(
        name=plan.data.name,
        version=plan.data.iteration + 1,
        iteration=plan.data.iteration,
        parent=plan.data.parent,
        algorithm=plan.algorithm,
        data_digest=plan.start.training.data_digest,
        resumable=has_optimizer_states(weights),
        steps=int(state.get("global_step", plan.total_steps)),
        loss=metrics.get("actor/loss", fmean(losses) if losses else None),
        metrics=metrics,
        seconds=round(meter.seconds, 2),
        gpus=when(placement.device == "cuda", placement.world_size),
        cpu_seconds=0.0 if shared else meter.take_lap()["cpu_seconds"],
        created_at=now(),
        **plan.record,
    )


def remove_leftovers(run: RunDir, keep: Callable[[Path], bool] = lambda _: False) -> list[Path]:
    """Remove the working folders of trainings, except those to keep. Return what was removed."""
    folders = list(chain.from_iterable(run.checkpoints.glob(f"*.{kind}") for kind in ("partial", "start", "start.new")))
    leftovers = [path for path in sorted(folders) if not keep(path)]
    for path in leftovers:
        with disk_errors(path):
            shutil.rmtree(path)
    return leftovers


def _flush(folder: Path) -> None:
    """fsync the files: the following rename must not become durable before their content."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


# Optimizer states and files that are only used with them.
STATES = (RL_STATE, "optimizer.pt", "scheduler.pt", "scaler.pt", "latest", "zero_to_fp32.py", "zero_to_torch.py")
# Weights, the adapter merged into them, and the critic trained with them.
WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "adapter", "critic")


def drop_old_states(run: RunDir, keep: int) -> None:
    """Remove the optimizer states of all but the newest checkpoints. Weights stay."""
    for checkpoint in checkpoints.checkpoints(run)[:-keep]:
        folder = checkpoints.folder(run, checkpoint)
        if checkpoint.resumable or has_optimizer_states(folder):
            _write_record(folder, checkpoint.model_copy(update={"resumable": False}))
            _remove_states(folder)


def drop_old_weights(run: RunDir, keep: int | None) -> None:
    """Remove the weights of all but the newest checkpoints, with their states; None keeps all. Records stay.

    The newest is the current policy; its adapter's base model and its reference policy are kept. Weights in use by a
    process on this machine are kept until a later call.
    """
    every = checkpoints.checkpoints(run)
    needed = set(chain.from_iterable((one.reference, one.adapter.base if one.adapter else "") for one in every[-1:]))
    for checkpoint in every[:-keep] if keep else ():
        folder = checkpoints.folder(run, checkpoint)
        if (
            checkpoint.name not in needed
            and (checkpoint.weights or any(folder.glob(WEIGHTS[0])))
            and not _in_use(folder)
        ):
            _write_record(folder, checkpoint.model_copy(update={"resumable": False, "weights": False}))
            _remove_states(folder)
            _remove(chain.from_iterable(map(folder.glob, WEIGHTS)))


def _write_record(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the record before the files are removed, so that after a crash it claims no missing files."""
    write_json(folder / checkpoints.RECORD, checkpoint.model_dump(mode="json"))


def _remove_states(folder: Path) -> None:
    _remove(
        path for path in folder.iterdir() if path.name in STATES or path.name.startswith(("rng_state", "global_step"))
    )


def _remove(paths: Iterable[Path]) -> None:
    """Remove files and folders. Raises `StoreError`."""
    for path in list(paths):
        with disk_errors(path):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _in_use(folder: Path) -> bool:
    """Return whether the command line of a process, such as a server, contains the folder."""
    names = {str(folder), str(folder.resolve())}
    return any(names.intersection(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
