"""Checkpoints of a run, and the selection of the current policy."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from webgym_cli.errors import StoreError, UsageError
from webgym_cli.records.checkpoint import Checkpoint
from webgym_cli.records.groups import Split
from webgym_cli.store.run import RunDir, refuse_invalid
from webgym_cli.util.files import read_json, replace_link, write_json
from webgym_cli.util.optional import known_or

if TYPE_CHECKING:
    from webgym_cli.config.model import Settings

RECORD = "checkpoint.json"
_NAME = re.compile(r"model_\d{8}_\d{6}")
_TIME = "%Y%m%d_%H%M%S"


def checkpoints(run: RunDir) -> list[Checkpoint]:
    """Return the complete checkpoints, oldest first; checkpoints with a damaged record are skipped.

    Raises `StoreError` if the newest record is damaged, because the current policy is then unknown.
    """
    complete, damaged = _scan(run)
    # A copy under another name (`model_best`) is a person's.
    damaged = {file: error for file, error in damaged.items() if _NAME.fullmatch(file.parent.name)}
    # Names sort by time. A damaged record that is older than a valid one does not affect the current policy.
    if damaged and (not complete or max(damaged).parent.name > max(checkpoint.name for checkpoint in complete)):
        raise damaged[max(damaged)]
    counting = (one for one in complete if run.newest is None or one.version <= run.newest)
    return sorted(counting, key=lambda checkpoint: checkpoint.version)


def list_complete(run: RunDir) -> list[Checkpoint]:
    """Return the complete checkpoints, oldest first, whatever is damaged."""
    return sorted(_scan(run)[0], key=lambda checkpoint: checkpoint.version)


def find_damaged_records(run: RunDir) -> dict[Path, str]:
    """Return the unreadable checkpoint records by path, each with the error message."""
    return {file: str(error).removeprefix(f"{file}: ") for file, error in _scan(run)[1].items()}


def _scan(run: RunDir) -> tuple[list[Checkpoint], dict[Path, StoreError]]:
    """Return the complete checkpoints (unsorted), and the error of each damaged record by path."""
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
    with refuse_invalid(f"{file}: not a checkpoint of this version", "restore it from a copy of the run"):
        return Checkpoint.model_validate(read_json(file))


def current(run: RunDir) -> Checkpoint | None:
    """Return the newest complete checkpoint, or None before the first training."""
    return next(reversed(checkpoints(run)), None)


def version(run: RunDir) -> int:
    """Return the version of the current policy (its number of trainings), which is also the current iteration."""
    newest = current(run)
    if newest is not None:
        return newest.version
    return int(read_json(run.first_version)["version"]) if run.first_version.is_file() else 0


def select_version(run: RunDir, number: int) -> RunDir:
    """Return the run with an older version of its policy as the current one, to evaluate it.

    Raises `UsageError` if there is no such version, or if its weights were deleted.
    """
    older = replace(run, newest=number)
    newest = current(older)
    if version(older) != number:
        known = [version(replace(run, newest=-1)), *(checkpoint.version for checkpoint in checkpoints(run))]
        raise UsageError(
            f"{run.root}: there is no policy version {number}", hint=f"versions: {', '.join(map(str, known))}"
        )
    if newest is not None and not newest.weights:
        raise UsageError(
            f"{run.root}: the weights of version {number} ({newest.name}) were deleted",
            hint="train.keep_weights keeps more of them",
        )
    return older


def algorithm(run: RunDir, settings: Settings, iteration: int | None = None) -> str:
    """Return the training algorithm of an iteration, default the current; demonstrations have their own setting."""
    # expert steps have no log-probabilities of the policy, which policy-gradient training needs
    demonstrations = known_or(iteration, version(run)) < settings.loop.demonstration_iterations
    return settings.loop.demonstration_algorithm if demonstrations else settings.train.algorithm


def is_startable(run: RunDir) -> bool:
    """Whether the first policy version can still be set: no checkpoint, and no episodes except imported ones."""
    if current(run) is not None or any(run.plan(split, version(run)).is_file() for split in Split):
        return False
    return run.first_version.is_file() or not any(run.list_iterations(split) for split in Split)


def set_first_version(run: RunDir, version: int) -> None:
    """Set the policy version of the base model, for runs that import the episodes of earlier versions."""
    write_json(run.first_version, {"version": version})


def folder(run: RunDir, checkpoint: Checkpoint) -> Path:
    """Return the folder of a checkpoint."""
    return run.checkpoints / checkpoint.name


def new_name(run: RunDir) -> str:
    """Return an unused checkpoint name, `model_<UTC time>`, later than all others even if the clock was set back."""
    used = filter(None, (_read_time(path.name) for path in run.checkpoints.glob("model_*")))
    moment = max([datetime.now(UTC), *(time + timedelta(seconds=1) for time in used)])
    return f"model_{moment:{_TIME}}"


def _read_time(name: str) -> datetime | None:
    """Return the time in a name, of an incomplete checkpoint too; None for a name that is no such time."""
    try:
        return datetime.strptime(name.partition(".")[0], f"model_{_TIME}").replace(tzinfo=UTC)
    except ValueError:
        return None


def policy_path(run: RunDir, settings: Settings) -> Path:
    """Return the weights of the current policy: its checkpoint folder, or the base model (a folder or a hub id)."""
    newest = current(run)
    return folder(run, newest) if newest else Path(settings.policy_config.base_model)


def locate_model(model: Path) -> str:
    """Return the model argument for vLLM and Transformers: the absolute path of a folder, or the hub id."""
    return str(model.resolve() if model.is_dir() else model)


def policy_name(run: RunDir, settings: Settings) -> str:
    """Return the name of the current policy: its checkpoint name, or the base model."""
    newest = current(run)
    return newest.name if newest else settings.policy_config.base_model


def publish(run: RunDir, settings: Settings, weights: Path, checkpoint: Checkpoint) -> None:
    """Publish complete weights as the current policy: write the record, rename the folder, relink `model.pt`.

    `weights` must be on the same file system as `checkpoints/<name>`, to which it is renamed.
    """
    # Each step is an atomic rename, so a crash leaves either the old policy or the new one.
    final = folder(run, checkpoint)
    try:
        write_json(weights / RECORD, checkpoint.model_dump(mode="json"))
        mode = (weights / RECORD).stat().st_mode
        for file in weights.rglob("*.safetensors"):  # safetensors writes them for their owner alone, whatever the umask
            file.chmod(mode)
        if weights != final:
            weights.rename(final)
        replace_link(run.model(settings), final)
    except OSError as error:
        raise StoreError(f"{final}: can't be published: {error.strerror}") from error


def repair_link(run: RunDir, settings: Settings) -> None:
    """Relink `model.pt` to the newest checkpoint, after a crash between the two renames of `publish`."""
    newest = current(run)
    if newest and run.newest is None and run.model(settings).resolve() != folder(run, newest).resolve():
        replace_link(run.model(settings), folder(run, newest))
