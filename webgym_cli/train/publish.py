"""Turns a finished training into the current policy."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError
from webgym_cli.jobs.machine_time import MachineMeter
from webgym_cli.records.checkpoint import Checkpoint
from webgym_cli.store import checkpoints
from webgym_cli.store.adapters import ADAPTER
from webgym_cli.store.run import RunDir, now
from webgym_cli.store.weights import find_non_finite, have_same_weights, is_zero_adapter
from webgym_cli.train import retention, working_dir
from webgym_cli.train.backend import TrainPlan
from webgym_cli.train.progress import TRAINER_LOG, read_log
from webgym_cli.train.working_dir import has_optimizer_states
from webgym_cli.util.files import disk_errors, write_json

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
    retention.drop_old_states(run, settings.train.keep_checkpoints)
    retention.drop_old_weights(run, settings.train.keep_weights)
    return checkpoint


def record(plan: TrainPlan, weights: Path, meter: MachineMeter, *, shared: bool) -> Checkpoint:
    """Return the record of finished weights. `shared`: episodes run meanwhile, and count the processor time."""
    placement = plan.launch.placement
    state: dict[str, Any] = working_dir.trainer_state(weights) or {}
    lines = read_log(plan.folder / TRAINER_LOG)
    losses = [line["loss"] for line in lines if "loss" in line]
    newest = lines[-1] if lines else {}
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
        gpus=placement.world_size if placement.device == "cuda" else 0,
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
