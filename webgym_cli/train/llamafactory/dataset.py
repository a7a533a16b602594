"""Reads the files that `prepare` wrote for training: `prepared.json`, `train_config.yaml` and `wandb_env.sh`."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shlex
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from webgym_cli.errors import MissingStageError, SettingsError, UsageError
from webgym_cli.records.base import Record
from webgym_cli.records.dataset import PREPARED, TRAIN_CONFIG, TRAIN_FILE, VALIDATION_FILE, WANDB_ENV, Prepared
from webgym_cli.store import checkpoints
from webgym_cli.store.run import RunDir, require_run
from webgym_cli.util.files import read_json
from webgym_cli.util.yaml_text import load_yaml

R = TypeVar("R", bound=Record)
# The first image of a sample, where it is an absolute path.
_ABSOLUTE_IMAGE = re.compile(rb'"images": \[("/[^"]*")')
# Variables that are taken from `wandb_env.sh`.
WANDB_VARIABLES = frozenset(
    f"WANDB_{name}" for name in ("PROJECT", "ENTITY", "RUN_NAME", "RUN_ID", "RESUME", "RUN_GROUP", "TAGS", "NOTES")
)
# Keys that don't change the result: an interrupted training can be resumed after they changed.
PLACES = ("output_dir", "dataset_dir", "run_name", "report_to", "preprocessing_num_workers", "dataloader_num_workers")


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
        for file, content in contents.items():
            _refuse_foreign_images(run, file, content, hint)
    return digest.hexdigest()


def _refuse_foreign_images(run: RunDir, file: Path, content: bytes, hint: str) -> None:
    """Raise `MissingStageError` where samples of an older version, with absolute paths, were made in another folder."""
    place = str(run.screenshots.resolve())
    for named in _ABSOLUTE_IMAGE.findall(content):
        image = json.loads(named)
        if not image.startswith(place):
            raise MissingStageError(
                f"{file}: names {image}, which is not of this run: it was moved or copied", hint=hint
            )


def _in_this_run(config: dict[str, Any], run: RunDir) -> dict[str, Any]:
    """Rewrite the run's paths in a configuration to the run's current folder: it may have been moved or copied."""
    written = Path(str(config.get("dataset_dir")))
    before, here = f"{written.parent}/", f"{run.dataset.resolve().parent}/"
    if written.name != run.dataset.name or before == here:
        return config
    texts = {key: value for key, value in config.items() if isinstance(value, str) and value.startswith(before)}
    return config | {key: here + value.removeprefix(before) for key, value in texts.items()}


def read_record(file: Path, kind: type[R], hint: str) -> R:
    """Return the record that a file holds. Raises `UsageError` that names the file and the place."""
    try:
        return kind.model_validate(read_json(file))
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg']}", hint=hint) from None


def read_train_config(run: RunDir, text: str | None = None) -> dict[str, Any]:
    """Return `train_config.yaml`, or `text` in its place. Raises `UsageError` that names the file and the line."""
    file = run.dataset / TRAIN_CONFIG
    hint = f"webgym prepare {run.root}"
    try:
        config = load_yaml(file.read_text(encoding="utf-8") if text is None else text)
    except FileNotFoundError:
        raise MissingStageError(f"{file}: is missing", hint=hint) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: can't be read: {error}", hint=hint) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise UsageError(f"{file}{line}: not YAML: {getattr(error, 'problem', error)}", hint=hint) from None
    if not isinstance(config, dict) or not {"model_name_or_path", "dataset", "output_dir"} <= config.keys():
        raise UsageError(f"{file}: model_name_or_path, dataset or output_dir is missing", hint=hint)
    config = _in_this_run(config, run)
    model = str(config["model_name_or_path"])
    if Path(model).is_absolute() and not Path(model).is_dir():
        raise MissingStageError(f"{file}: model_name_or_path: there is no folder {model}", hint=hint)
    return config


def read_wandb_env(run: RunDir) -> dict[str, str]:
    """Return the variables that `wandb_env.sh` exports, without running it; none where the file is missing."""
    file = run.dataset / WANDB_ENV
    if not file.is_file():
        return {}
    try:
        words = shlex.split(file.read_text(encoding="utf-8"), comments=True)
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: can't be read: {error}", hint=f"webgym prepare {run.root}") from None
    pairs = (word.partition("=") for word in words if "=" in word)
    # by name: others would make the trainer load code (`LD_PRELOAD`, `PYTHONPATH`, `WANDB__EXECUTABLE`)
    return {name: value for name, _, value in pairs if name in WANDB_VARIABLES}


def deepspeed_config(config: dict[str, Any]) -> dict[str, Any] | None:
    """Return the DeepSpeed settings of a training, or None. Raises `SettingsError` that names the file."""
    value = config.get("deepspeed")
    if value is None or isinstance(value, dict):
        return value
    file = Path(str(value))
    try:
        loaded = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{file}: DeepSpeed's settings can't be read: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"{file}: not JSON: {error}") from None
    if not isinstance(loaded, dict):
        raise SettingsError(f"{file}: DeepSpeed's settings must be a JSON object")
    return loaded


def config_digest(config: dict[str, Any]) -> str:
    """Return the SHA-256 of all configuration values that change the result of the training."""
    kept = {key: value for key, value in config.items() if key not in PLACES}
    kept["deepspeed"] = deepspeed_config(config)
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()


def total_steps(config: dict[str, Any], samples: int, world_size: int) -> int:
    """Return the optimizer steps that the trainer will make, as it counts them: partial batches count, at least 1."""
    if int(config.get("max_steps") or -1) > 0:
        return int(config["max_steps"])
    batches = math.ceil(math.ceil(samples / int(config.get("per_device_train_batch_size") or 8)) / world_size)
    per_epoch = max(1, math.ceil(batches / int(config.get("gradient_accumulation_steps") or 1)))
    return max(1, math.ceil(per_epoch * float(config.get("num_train_epochs") or 3)))
