"""Turns a finished training into the current policy, and keeps the disk from filling with optimizer states."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, StoreError
from webgym_cli.records.checkpoint import Checkpoint
from webgym_cli.store import checkpoints
from webgym_cli.store.files import write_json
from webgym_cli.store.run import RunDir, now
from webgym_cli.train import partial
from webgym_cli.train.plan import TrainPlan
from webgym_cli.train.progress import TRAINER_LOG, mean_loss, read_log
from webgym_cli.train.start_state import resumable

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
"""What a server needs beside the weights, where the model has it."""
PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json")
"""The image processor's settings: newer versions write the first only, which holds the others' content."""
STATES = ("optimizer.pt", "scheduler.pt", "scaler.pt", "latest", "zero_to_fp32.py", "zero_to_torch.py")
"""Optimizer states and what only makes sense with them."""


@contextmanager
def disk_errors(place: Path) -> Iterator[None]:
    """Turn what the disk refuses into `StoreError`."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{error.filename or place}: {error.strerror or error}",
            hint="free disk space or mend the permissions, then run the same command again",
        ) from error


def finished_checkpoint(plan: TrainPlan, log: Path) -> Path:
    """Return the checkpoint of the last step. Raises `JobError` when the training stopped early or diverged."""
    found = partial.newest_complete(plan.folder)
    state = (partial.trainer_state(found) if found else None) or {}
    lines = read_log(plan.folder / TRAINER_LOG)
    done = max([int(state.get("global_step", 0)), *(line.step for line in lines)])
    total = int(state.get("max_steps") or (lines[-1].total if lines else plan.total_steps))
    hint = f"read {log}, then run the same command again"
    if found is None or int(state["global_step"]) < total:
        kept = f"; its last whole checkpoint is of step {state['global_step']}" if found else ""
        raise JobError(f"the trainer ended after {done} of {total} steps{kept}; log: {log}", hint=hint, returncode=0)
    norms = [entry["grad_norm"] for entry in state.get("log_history", []) if "grad_norm" in entry]
    if norms and isinstance(norms[-1], float) and math.isnan(norms[-1]):
        shutil.rmtree(plan.folder, ignore_errors=True)  # going on from here can only give the same
        raise JobError(
            f"the training diverged: the gradient became NaN; log: {log}",
            hint="lower algorithm_config.learning_rate, prepare again and train again",
            returncode=0,
        )
    return found


def publish(plan: TrainPlan, run: RunDir, settings: Settings, weights: Path, log_dir: Path) -> Checkpoint:
    """Make a finished checkpoint the current policy, tidy up and return its record. Raises `StoreError`."""
    with disk_errors(weights):
        _complete_files(plan, weights)
        write_json(weights / partial.RECORD, plan.training.model_dump(mode="json"))
        (weights / "training_args.bin").unlink(missing_ok=True)  # a pickle that nobody needs
        _flush(weights)
        if (plan.folder / TRAINER_LOG).is_file():
            shutil.copyfile(plan.folder / TRAINER_LOG, log_dir / f"{plan.name}.{TRAINER_LOG}")
    checkpoint = record(plan, weights)
    checkpoints.publish(run, settings, weights, checkpoint)
    remove_leftovers(run)
    drop_old_states(run, settings.train.keep_checkpoints)
    return checkpoint


def record(plan: TrainPlan, weights: Path) -> Checkpoint:
    """Return the record of finished weights."""
    state: dict[str, Any] = partial.trainer_state(weights) or {}
    return Checkpoint(
        name=plan.name,
        version=plan.iteration + 1,
        iteration=plan.iteration,
        parent=plan.parent,
        data_digest=plan.training.data_digest,
        resumable=resumable(weights),
        steps=int(state.get("global_step", plan.total_steps)),
        loss=mean_loss(read_log(plan.folder / TRAINER_LOG)),
        created_at=now(),
    )


def remove_leftovers(run: RunDir, keep: Callable[[Path], bool] = lambda _: False) -> list[Path]:
    """Remove the working folders of trainings, except those to keep. Return what was removed."""
    found = [path for kind in ("partial", "start", "start.new") for path in run.checkpoints.glob(f"*.{kind}")]
    gone = [path for path in sorted(found) if not keep(path)]
    for path in gone:
        with disk_errors(path):
            shutil.rmtree(path)
    return gone


def drop_old_states(run: RunDir, keep: int) -> None:
    """Remove the optimizer states of all but the newest checkpoints. Weights stay."""
    for checkpoint in checkpoints.checkpoints(run)[:-keep]:
        folder = checkpoints.folder(run, checkpoint)
        if not (checkpoint.resumable or resumable(folder)):
            continue
        # the record first: a crash in between must not leave a checkpoint that claims states it lost
        settled = checkpoint.model_copy(update={"resumable": False})
        write_json(folder / checkpoints.RECORD, settled.model_dump(mode="json"))
        with disk_errors(folder):
            for path in folder.iterdir():
                if path.name in STATES or path.name.startswith("rng_state"):
                    path.unlink()
                elif path.name.startswith("global_step") and path.is_dir():
                    shutil.rmtree(path)


def _complete_files(plan: TrainPlan, weights: Path) -> None:
    """Copy what the trainer left out of the checkpoint from its own folder, else from the model it started from."""
    sources = [plan.folder, Path(str(plan.config["model_name_or_path"]))]
    wanted = list(SIDE_FILES)
    if not any((weights / name).is_file() for name in PROCESSOR_FILES):
        wanted += PROCESSOR_FILES
    for name in wanted:
        found = next((source / name for source in sources if (source / name).is_file()), None)
        if found and not (weights / name).exists():
            shutil.copyfile(found, weights / name)


def _flush(folder: Path) -> None:
    """Force the files to the disk: the rename that follows must not outlive their content."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
