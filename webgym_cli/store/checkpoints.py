"""The checkpoints of a run, and which of them is the current policy."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from webgym_cli.config.model import Settings
from webgym_cli.errors import StoreError
from webgym_cli.records.checkpoint import Checkpoint
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import list_iterations
from webgym_cli.store.run import RunDir
from webgym_cli.util.files import read_json, replace_link, write_json

RECORD = "checkpoint.json"


def checkpoints(run: RunDir) -> list[Checkpoint]:
    """Return the complete checkpoints, oldest first. One whose record is damaged is skipped.

    Raises `StoreError` where that is the newest: nothing else tells which policy is the current one.
    """
    complete, damaged = _scan(run)
    # By their time: a damaged record that a good one follows is history.
    if damaged and (not complete or max(damaged).parent.name > max(checkpoint.name for checkpoint in complete)):
        raise damaged[max(damaged)]
    return sorted(complete, key=lambda checkpoint: checkpoint.version)


def find_damaged_records(run: RunDir) -> dict[Path, str]:
    """Return the checkpoints' records that can't be read, and why."""
    return {file: str(error).removeprefix(f"{file}: ") for file, error in _scan(run)[1].items()}


def _scan(run: RunDir) -> tuple[list[Checkpoint], dict[Path, StoreError]]:
    """Return the complete checkpoints and, by its file, what is wrong with each damaged record."""
    complete: list[Checkpoint] = []
    damaged: dict[Path, StoreError] = {}
    for file in run.checkpoints.glob(f"model_*/{RECORD}"):
        try:
            checkpoint = _read(file)
        except StoreError as error:
            damaged[file] = error
            continue
        if checkpoint.name == file.parent.name:
            complete.append(checkpoint)
    return complete, damaged


def _read(file: Path) -> Checkpoint:
    try:
        return Checkpoint.model_validate(read_json(file))
    except ValidationError as error:
        raise StoreError(
            f"{file}: not a checkpoint of this version: {error.errors()[0]['msg']}",
            hint="restore it from a copy of the run",
        ) from error


def current(run: RunDir) -> Checkpoint | None:
    """Return the newest complete checkpoint, or None before the first training."""
    complete = checkpoints(run)
    return complete[-1] if complete else None


def version(run: RunDir) -> int:
    """Return the current policy's version: the number of trainings behind it, and the iteration it rolls out."""
    newest = current(run)
    if newest is not None:
        return newest.version
    return int(read_json(run.first_version)["version"]) if run.first_version.is_file() else 0


def algorithm(run: RunDir, settings: Settings) -> str:
    """Return the algorithm of the current iteration: demonstrations have an algorithm of their own."""
    # an expert's steps have no log-probs of the policy: no policy gradient can train on them
    demonstrations = version(run) < settings.loop.demonstration_iterations
    return settings.loop.demonstration_algorithm if demonstrations else settings.train.algorithm


def is_startable(run: RunDir) -> bool:
    """Whether the run's first version is still open: it has no checkpoint, and no episodes but those of imports."""
    if current(run) is not None or any(run.plan(split, version(run)).is_file() for split in Split):
        return False
    return run.first_version.is_file() or not any(list_iterations(run, split) for split in Split)


def set_first_version(run: RunDir, version: int) -> None:
    """Let the run's base model count as the policy of so many trainings, as after an import of their episodes."""
    write_json(run.first_version, {"version": version})


def folder(run: RunDir, checkpoint: Checkpoint) -> Path:
    """Return a checkpoint's folder."""
    return run.checkpoints / checkpoint.name


def new_name(run: RunDir) -> str:
    """Return a name for a checkpoint: of this second, and no other's, nor that of the rest of one."""
    moment = datetime.now(UTC)
    while any(run.checkpoints.glob(f"model_{moment:%Y%m%d_%H%M%S}*")):
        moment = datetime.fromtimestamp(moment.timestamp() + 1, UTC)
    return f"model_{moment:%Y%m%d_%H%M%S}"


def policy_path(run: RunDir, settings: Settings) -> Path:
    """Return the current policy's weights: the current checkpoint, else the base model (a folder or a hub id)."""
    newest = current(run)
    return folder(run, newest) if newest else Path(settings.policy_config.base_model)


def locate_model(model: Path) -> str:
    """Return a model's place as others take it: a folder's absolute path, else the hub id that it is."""
    return str(model.resolve() if model.is_dir() else model)


def policy_name(run: RunDir, settings: Settings) -> str:
    """Return the current policy's name: its checkpoint's, or the base model."""
    newest = current(run)
    return newest.name if newest else settings.policy_config.base_model


def publish(run: RunDir, settings: Settings, weights: Path, checkpoint: Checkpoint) -> None:
    """Make complete weights the current policy: record, rename into place, point `model.pt` at them.

    `weights` is a folder beside its final place; after the rename it is `checkpoints/<name>`.
    """
    # Each step is one rename, so a crash leaves the old policy or the new one.
    final = folder(run, checkpoint)
    try:
        write_json(weights / RECORD, checkpoint.model_dump(mode="json"))
        if weights != final:
            weights.rename(final)
        replace_link(run.model(settings), final)
    except OSError as error:
        raise StoreError(f"{final}: can't be published: {error.strerror}") from error


def repair_link(run: RunDir, settings: Settings) -> None:
    """Point `model.pt` at the newest checkpoint where a crash came between the two renames."""
    newest = current(run)
    if newest and run.model(settings).resolve() != folder(run, newest).resolve():
        replace_link(run.model(settings), folder(run, newest))
