"""Reads the files that `prepare` wrote for LLaMA-Factory: `train_config.yaml` and `wandb_env.sh`."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Any

from webgym_cli.errors import MissingStageError, UsageError
from webgym_cli.records.dataset import TRAIN_CONFIG, WANDB_ENV
from webgym_cli.store.run import RunDir
from webgym_cli.train.working_dir import digest_options

# Variables that are taken from `wandb_env.sh`; the settings have what else names the W&B run.
WANDB_VARIABLES = frozenset(("WANDB_RESUME", "WANDB_RUN_GROUP", "WANDB_TAGS", "WANDB_NOTES"))
# Keys that don't change the result: an interrupted training can be resumed after they changed.
PLACES = ("output_dir", "dataset_dir", "run_name", "report_to", "preprocessing_num_workers", "dataloader_num_workers")


def read_train_config(run: RunDir, planned: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return `train_config.yaml`, or what it will be. Raises `UsageError` that names the file and the key."""
    file = run.dataset / TRAIN_CONFIG
    hint = f"webgym prepare {run.root}"
    config = planned
    if not config:
        from webgym_cli.util.yaml_text import read_yaml  # a plan from the settings needs none

        try:
            config = read_yaml(file, hint=hint)
        except FileNotFoundError:
            raise MissingStageError(f"{file}: is missing", hint=hint) from None
        except (OSError, ValueError, RecursionError) as error:
            raise UsageError(f"{file}: can't be read: {error}", hint=hint) from None
    if not isinstance(config, dict) or not {"model_name_or_path", "dataset", "output_dir"} <= config.keys():
        raise UsageError(f"{file}: model_name_or_path, dataset or output_dir is missing", hint=hint)
    # The run's paths in its folder of now: it may have been moved or copied.
    written = Path(str(config.get("dataset_dir")))
    before, here = f"{written.parent}/", f"{run.dataset.resolve().parent}/"
    if written.name == run.dataset.name and before != here:
        texts = {key: value for key, value in config.items() if isinstance(value, str) and value.startswith(before)}
        config = config | {key: here + value.removeprefix(before) for key, value in texts.items()}
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


def digest_config(run: RunDir, config: dict[str, Any]) -> tuple[str, str]:
    """Return the SHA-256 of all values that change the result of the training, `deepspeed` by its content."""
    kept = {key: value for key, value in config.items() if key not in PLACES}
    return digest_options(run, json.loads(json.dumps(kept, default=str)))


def total_steps(config: dict[str, Any], samples: int, world_size: int) -> int:
    """Return the optimizer steps that the trainer will make, as it counts them: partial batches count, at least 1."""
    if int(config.get("max_steps") or -1) > 0:
        return int(config["max_steps"])
    batches = math.ceil(math.ceil(samples / int(config.get("per_device_train_batch_size") or 8)) / world_size)
    per_epoch = max(1, math.ceil(batches / int(config.get("gradient_accumulation_steps") or 1)))
    return max(1, math.ceil(per_epoch * float(config.get("num_train_epochs") or 3)))
