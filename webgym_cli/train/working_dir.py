"""The working folder of a training, and the completeness of its checkpoints."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from webgym_cli.errors import StoreError
from webgym_cli.records.base import Record
from webgym_cli.records.training_files import RL_STATE as RL_STATE
from webgym_cli.records.training_files import TRAINER_STATE as TRAINER_STATE
from webgym_cli.store.run import RunDir
from webgym_cli.store.weights import is_complete_file
from webgym_cli.util.files import read_json, read_optional_object
from webgym_cli.util.json_values import digest_json
from webgym_cli.util.text import map_texts

RECORD = "webgym_training.json"
OPTIMIZER_STATES = "global_step*/*_optim_states.pt"


class TrainingIdentity(Record):
    """`webgym_training.json`: what a training is made of; decides whether another may go on from its states."""

    data_digest: str
    """SHA-256 of the samples."""
    config_digest: str
    """SHA-256 of the settings that change what is learned."""
    former_digest: str = Field("", exclude=True)
    """The same as an older version computed it, for a training that it began; not stored."""
    former_data: str = Field("", exclude=True)
    """`data_digest` of an older version, which left out a batch's rewards; not stored."""
    parent: str
    """The model that it started from."""
    carried: bool
    """Whether it started with the optimizer states of its parent."""
    world_size: int
    """Processes: only as many can read DeepSpeed's states, and go on in LLaMA-Factory's batches."""
    zero_stage: int | None
    """DeepSpeed's ZeRO stage; None without DeepSpeed."""


def digest_options(run: RunDir, options: Any, former: Any = None) -> tuple[str, str]:
    """Return the SHA-256 of what changes a training's result, the same after its run, which it names, was moved.

    The second is that of an older version: of `former`, or of `options` with the run's place.
    """
    root = f"{run.root.resolve()}/"
    return digest_json(map_texts(options, lambda text: text.removeprefix(root))), digest_json(former or options)


def why_states_differ(name: str, training: TrainingIdentity, *, zero_stage: int | None, processes: int) -> str:
    """Return why a training can't read a checkpoint's optimizer states of such processes; empty if it can."""
    if zero_stage != training.zero_stage:
        before, now = (
            "no DeepSpeed" if stage is None else f"DeepSpeed ZeRO-{stage}"
            for stage in (zero_stage, training.zero_stage)
        )
        return f"{name} was trained with {before}, this training uses {now}"
    if zero_stage is not None and processes != training.world_size:
        return f"{name} has the optimizer states of {processes} process(es), this training has {training.world_size}"
    return ""


def partial_folder(run: RunDir, name: str) -> Path:
    """Return the working folder of a training before it is published."""
    return run.checkpoints / f"{name}.partial"


def read_training(folder: Path) -> TrainingIdentity | None:
    """Return a folder's record, or None if it is missing or damaged."""
    with suppress(StoreError, ValidationError):  # a damaged record means a new start, never a failed command
        return TrainingIdentity.model_validate(read_json(folder / RECORD))
    return None


def find_interrupted(
    run: RunDir, training: TrainingIdentity, *, any_size: bool = False
) -> Iterator[tuple[Path, TrainingIdentity]]:
    """Yield the working folders of this same training, newest first, with their records; carried or not.

    `any_size`: also those of another number of processes.
    """
    for folder in sorted(run.checkpoints.glob("*.partial"), reverse=True):
        if (before := read_training(folder)) is None:
            continue
        size = before.world_size if any_size else training.world_size
        facts = {"carried": before.carried, "world_size": size, "former_digest": "", "former_data": ""}
        former = {"config_digest": training.former_digest, "data_digest": training.former_data}
        facts |= {name: digest for name, digest in former.items() if getattr(before, name) == digest}
        if before == training.model_copy(update=facts):
            yield folder, before


def trainer_state(checkpoint: Path | None) -> dict[str, Any] | None:
    """Return `trainer_state.json`; None without a checkpoint, or for one that a crash has left incomplete."""
    state = read_optional_object(checkpoint / TRAINER_STATE) if checkpoint else {}
    return state if isinstance(state.get("global_step"), int) else None


def numbered_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints inside a training's folder, newest first, complete or not."""
    folders = [path for path in folder.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdigit()]
    return sorted(folders, key=step_of, reverse=True)


def step_of(checkpoint: Path) -> int:
    """Return the step in a checkpoint's name."""
    return int(checkpoint.name.removeprefix("checkpoint-"))


def newest_complete(folder: Path, *, world_size: int = 1, resumable: bool = False) -> Path | None:
    """Return the newest complete checkpoint, or None."""
    for checkpoint in numbered_checkpoints(folder):
        if is_complete(checkpoint) and (not resumable or is_resumable(checkpoint, world_size)):
            return checkpoint
    return None


def finished_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint of a training's last step, or None while steps are missing."""
    newest = newest_complete(folder)
    state = trainer_state(newest) or {}
    total = state.get("max_steps")
    return newest if isinstance(total, int) and state["global_step"] >= total > 0 else None


def is_complete(checkpoint: Path) -> bool:
    """Return whether weights and trainer state are complete. The trainer writes its state last."""
    state = trainer_state(checkpoint)
    if state is None or state["global_step"] != step_of(checkpoint):
        return False
    weights, index = sorted(checkpoint.glob("*.safetensors")), checkpoint / "model.safetensors.index.json"
    try:  # an unsharded model has no index
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values() if index.is_file() else ()
    except (OSError, ValueError, KeyError, AttributeError):
        return False
    shards = all((checkpoint / name).is_file() for name in set(names))
    return bool(weights) and all(map(is_complete_file, weights)) and shards


def is_resumable(checkpoint: Path, world_size: int) -> bool:
    """Return whether `world_size` processes can resume from here with the losses of an uninterrupted training."""
    needed = [checkpoint / "scheduler.pt"]
    if world_size == 1 and (checkpoint / "rng_state.pth").exists():
        needed.append(checkpoint / "rng_state.pth")
    else:
        needed += [checkpoint / f"rng_state_{rank}.pth" for rank in range(world_size)]
    if shards := list(checkpoint.glob(OPTIMIZER_STATES)):
        needed += [*shards, *checkpoint.glob("global_step*/*_model_states.pt")]
        if len(shards) != world_size or not (checkpoint / "latest").is_file():
            return False
    else:
        needed.append(checkpoint / "optimizer.pt")
    return all(map(is_whole_archive, needed))


def is_whole_archive(path: Path) -> bool:
    """Return whether a torch file (a zip archive) is complete."""
    # The zip directory is written last, so a torn archive fails to open.
    with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path):
        return True
    return False


def has_optimizer_states(folder: Path) -> bool:
    """Whether a folder has optimizer states of LLaMA-Factory or of webgym's own trainer."""
    return has_moments(folder) or (folder / RL_STATE).is_dir()


def has_moments(folder: Path) -> bool:
    """Whether a folder has optimizer states of LLaMA-Factory, by the same rule as WebGym."""
    states = (folder / "optimizer.pt").is_file() or (folder / "latest").is_file()
    return (folder / "trainer_state.json").is_file() and (states or any(folder.glob(OPTIMIZER_STATES)))
