"""Merges a trained LoRA adapter into its base model, so that a full model is published."""

from __future__ import annotations

import shutil
import time
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from webgym_cli.config.model import Settings
from webgym_cli.config.model_families import find_model_folder
from webgym_cli.errors import JobError
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.records.training_files import ADAPTER, ADAPTER_WEIGHTS
from webgym_cli.store.adapters import ADAPTER_CONFIG
from webgym_cli.store.weights import is_complete_file
from webgym_cli.train import working_dir
from webgym_cli.train.backend import TrainPlan
from webgym_cli.train.llamafactory.backend import CLI
from webgym_cli.train.process_limits import run_within
from webgym_cli.train.trainer_log import trainer_error
from webgym_cli.util.files import read_optional_object, write_atomic
from webgym_cli.venvs.locate import trainer_environ

MERGED, MERGING, CONFIG = "merged", "merged.new", "merge.yaml"
# Settings of the training that decide how model, tokenizer and processor are loaded and saved.
KEPT = ("template", "trust_remote_code", "image_min_pixels", "image_max_pixels", "resize_vocab", "add_tokens")
PRECISIONS = ("float32", "float16", "bfloat16")
SHARD_GB = 5


async def export(plan: TrainPlan, adapter: Path, settings: Settings, log: Path, sink: EventSink) -> Path:
    """Return the folder of the merged weights beside the adapter's; without LoRA the checkpoint itself.

    A merge finished by an earlier attempt is reused. The weights keep the base model's dtype.
    Raises `JobError`.
    """
    if plan.launch.config.get("finetuning_type") != "lora":
        return adapter
    done = plan.folder / MERGED
    if done.is_dir():
        return done
    began = time.monotonic()
    target = plan.folder / MERGING
    shutil.rmtree(target, ignore_errors=True)
    write_atomic(plan.folder / CONFIG, yaml.safe_dump(_config(plan, adapter, target), sort_keys=False))
    await _export(plan, settings, log)
    files = list(target.glob("*.safetensors"))
    if not files or not all(map(is_complete_file, files)):
        raise JobError(f"the adapter was merged, but {target} holds no whole weights; log: {log}", hint=f"read {log}")
    _complete(adapter, target)
    target.rename(done)
    seconds = round(time.monotonic() - began, 1)
    message = f"the adapter is merged into the weights, after {seconds:.0f} s"
    sink(make_event("train_merge", seconds=seconds, message=message))
    return done


def _config(plan: TrainPlan, adapter: Path, target: Path) -> dict[str, Any]:
    """Return the settings of `llamafactory-cli export`."""
    model, config = plan.data.model, plan.launch.config
    kept = {name: config[name] for name in KEPT if name in config}
    return {
        "model_name_or_path": model,
        "adapter_name_or_path": str(adapter),
        "finetuning_type": "lora",
        **kept,
        "export_dir": str(target),
        "export_size": SHARD_GB,
        "export_device": "cpu",  # a vLLM server may occupy the GPU memory
        "infer_dtype": precision(find_model_folder(model)),
    }


def precision(folder: Path | None) -> str:
    """Return the precision of a model's weights as its `config.json` names it; `auto` where it doesn't."""
    config = read_optional_object(folder / "config.json") if folder else {}
    text = config.get("text_config") or {}
    dtypes = (section.get(key) for section, key in product((config, text), ("dtype", "torch_dtype")))
    return next((str(name) for name in dtypes if name in PRECISIONS), "auto")


async def _export(plan: TrainPlan, settings: Settings, log: Path) -> None:
    """Run LLaMA-Factory's export to its end. Raises `JobError`."""
    argv = [str(plan.launch.python.parent / CLI), "export", CONFIG]  # also if torchrun starts the training
    env = trainer_environ(plan.launch.python) | plan.launch.env
    code = await run_within(settings.train, argv, "merging the adapter", env=env, log=log, folder=plan.folder)
    if code != 0:
        error = trainer_error(code, log)
        raise JobError(f"the adapter could not be merged: {error}", hint=error.hint, returncode=code)


def _complete(adapter: Path, merged: Path) -> None:
    """Copy a checkpoint's other files, and the adapter, into the merged folder."""
    shutil.copyfile(adapter / working_dir.TRAINER_STATE, merged / working_dir.TRAINER_STATE)
    (merged / ADAPTER).mkdir(exist_ok=True)
    for name in (ADAPTER_WEIGHTS, ADAPTER_CONFIG):
        shutil.copyfile(adapter / name, merged / ADAPTER / name)
    (merged / "Modelfile").unlink(missing_ok=True)  # for Ollama, with its own template
