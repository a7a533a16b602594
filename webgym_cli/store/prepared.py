"""Reads what `prepare` wrote for the next training: `llamafactory_data/` and `rl_data/`."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from webgym_cli.config.model import Settings
from webgym_cli.errors import MissingStageError, UsageError
from webgym_cli.records.base import Record, describe_invalid
from webgym_cli.records.dataset import (
    DEEPSPEED,
    PREPARED,
    SUMMARY,
    TRAIN_FILE,
    TRAJECTORIES,
    VALIDATION_FILE,
    Prepared,
    RlData,
    TrainingData,
)
from webgym_cli.store import checkpoints
from webgym_cli.store.checkpoints import algorithm
from webgym_cli.store.find_run import require_run
from webgym_cli.store.run import RunDir
from webgym_cli.util.files import digest_content, read_json
from webgym_cli.util.json_values import digest_json

R = TypeVar("R", bound=Record)
# The first image of a sample, where it is an absolute path.
_ABSOLUTE_IMAGE = re.compile(rb'"images": \[("/[^"]*")')


def find_prepared(run: RunDir) -> Prepared | None:
    """Return the record of the existing dataset, of whatever iteration, or None. Raises `UsageError` if damaged."""
    return _find(run, run.dataset / PREPARED, Prepared)


def find_batch(run: RunDir) -> RlData | None:
    """Return the record of the existing batch, of whatever iteration, or None. Raises `UsageError` if damaged."""
    return _find(run, run.rl_data / SUMMARY, RlData)


def _find(run: RunDir, file: Path, kind: type[R]) -> R | None:
    return read_record(file, kind, f"webgym prepare {run.root}") if file.is_file() else None


def read_prepared(run: RunDir) -> Prepared:
    """Return the dataset to train on. Raises `MissingStageError` if there is none or it was already trained on."""
    file = run.dataset / PREPARED
    judged = run.orm_of
    require_run(judged or run, (judged or run).root)
    hint = f"webgym prepare {judged.root} --target orm" if judged else f"webgym prepare {run.root}"
    if not file.is_file():
        raise MissingStageError(f"{run.dataset}: there is no dataset", hint=hint)
    prepared = read_record(file, Prepared, hint)
    newest = checkpoints.current(run)
    version = checkpoints.version(run)
    if prepared.iteration != version:
        known = f"{newest.name} was already trained on it" if newest and prepared.iteration < version else "not current"
        raise MissingStageError(
            f"{run.dataset}: the dataset is of iteration {prepared.iteration}, the policy is of {version}: {known}",
            hint=hint if judged else f"webgym rollout {run.root}, then {hint}",
        )
    if newest and prepared.parent != newest.name:
        raise MissingStageError(
            f"{run.dataset}: the dataset is for training {prepared.parent}, the current policy is {newest.name}",
            hint=hint,
        )
    return prepared


def find_edited_deepspeed(dataset: Path, prepared: Prepared) -> Path | None:
    """Return `deepspeed.json` if it was edited by hand; unknown, thus None, in a dataset of an older version."""
    file = dataset / DEEPSPEED
    is_known = prepared.deepspeed_digest and file.is_file()
    return file if is_known and digest_content(file) != prepared.deepspeed_digest else None


def read_data_digest(run: RunDir, prepared: Prepared) -> str:
    """Return the SHA-256 of the current samples; it differs from `prepared`'s if the user edited them.

    Raises `MissingStageError` where a file is missing, or names the images of another run.
    """
    hint, digest = f"webgym prepare {run.root}", hashlib.sha256()
    names = (TRAIN_FILE, VALIDATION_FILE) if prepared.val_samples else (TRAIN_FILE,)
    contents = {}
    for file in (run.dataset / name for name in names):
        try:
            contents[file] = file.read_bytes()
        except OSError as error:
            raise MissingStageError(f"{file}: can't be read: {error.strerror}", hint=hint) from None
        digest.update(contents[file])
    if digest.hexdigest() == prepared.data_digest:
        place = str(run.screenshots.resolve())
        for file, content in contents.items():  # samples of an older version have absolute paths
            for named in _ABSOLUTE_IMAGE.findall(content):
                image = json.loads(named)
                if not image.startswith(place):
                    raise MissingStageError(
                        f"{file}: names {image}, which is not of this run: it was moved or copied", hint=hint
                    )
    return digest.hexdigest()


def read_batch(run: RunDir, settings: Settings, *, webrl: bool) -> RlData:
    """Return the batch's record. Raises `MissingStageError` unless it is the current policy's and fits the settings."""
    file, hint = run.rl_data / SUMMARY, f"webgym prepare {run.root}"
    if not file.is_file():
        raise MissingStageError(f"{run.rl_data}: there is no batch", hint=hint)
    batch = read_record(file, RlData, hint)
    newest = checkpoints.current(run)
    version = checkpoints.version(run)
    if batch.iteration != version or (newest and batch.policy != newest.name):
        raise MissingStageError(
            f"{run.rl_data}: the batch is for training {batch.policy} in iteration {batch.iteration}, the current "
            f"policy is {newest.name if newest else 'the base model'}, version {version}",
            hint=f"webgym rollout {run.root}, then {hint}",
        )
    if (batch.replayed_rows is not None) != webrl:
        kind = algorithm(run, settings)
        fault = f"was not prepared for train.algorithm={kind}"
        if not webrl:
            fault = f"was prepared for train.algorithm=webrl, not for {kind}"
        raise MissingStageError(f"{run.rl_data}: the batch {fault}", hint=f"{hint} -s train.algorithm={kind}")
    # Where the policy is now: the run may have been moved or copied since.
    return batch.model_copy(update={"model": checkpoints.locate_model(checkpoints.policy_path(run, settings))})


def describe_batch(run: RunDir, batch: RlData) -> TrainingData:
    """Return a batch as training data. Raises `MissingStageError` where its rewards are missing."""
    file = run.rl_data / TRAJECTORIES
    try:  # episodes that were judged again have the same rows with other rewards
        digest = digest_json([batch.digest, digest_content(file)])
    except OSError as error:
        hint = f"webgym prepare {run.root}"
        raise MissingStageError(f"{file}: can't be read: {error.strerror}", hint=hint) from None
    return TrainingData(batch.model_name, batch.iteration, batch.policy, batch.model, digest, batch.digest)


def read_record(file: Path, kind: type[R], hint: str) -> R:
    """Return the record that a file holds. Raises `UsageError` that names the file and the place."""
    try:
        return kind.model_validate(read_json(file))
    except ValidationError as error:
        raise UsageError(f"{file}: {describe_invalid(error)}", hint=hint) from None
