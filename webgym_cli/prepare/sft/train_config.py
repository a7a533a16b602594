"""LLaMA-Factory's `train_config.yaml` of a prepared dataset and the files beside it, renewed with the settings."""

from __future__ import annotations

import hashlib
import math
import os
import shlex
from pathlib import Path
from typing import Any, Literal

from webgym_cli.config.algorithm_config import AlgorithmSettings
from webgym_cli.config.model import Settings
from webgym_cli.config.model_defaults import require_template
from webgym_cli.config.shipped import find_deepspeed_file
from webgym_cli.config.trust import is_own, refuse_foreign
from webgym_cli.errors import SettingsError
from webgym_cli.records.dataset import (
    DATASET_INFO,
    DEEPSPEED,
    PREPARED,
    TRAIN,
    TRAIN_CONFIG,
    VALIDATION,
    WANDB_ENV,
    Prepared,
)
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.records.prompt_version import PromptVersion
from webgym_cli.store.adapters import plan_adapter, read_adapter
from webgym_cli.store.checkpoints import locate_model, policy_path, version
from webgym_cli.store.prepared import find_edited_deepspeed, find_prepared
from webgym_cli.store.run import RunDir, run_id
from webgym_cli.util.files import write_atomic, write_json
from webgym_cli.util.optional import map_known, when
from webgym_cli.venvs.locate import resolve_device
from webgym_cli.venvs.wandb_mode import wandb_run_variables

# LLaMA-Factory's template that adds nothing, for prompts that contain their control tokens.
RAW = "empty"
# Settings with the same names in LLaMA-Factory.
_FROZEN = ("freeze_vision_tower", "freeze_multi_modal_projector", "freeze_language_model")
_OPTIMISATION = (
    *("cutoff_len", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("learning_rate", "max_grad_norm", "weight_decay", "num_train_epochs", "warmup_steps", "lr_scheduler_type"),
    # LLaMA-Factory enables checkpointing regardless of transformers' own argument
    *("logging_steps", "bf16", "disable_gradient_checkpointing"),
)
# Maximum number of processes that tokenize the dataset, and the samples from which another one pays.
_WORKERS, _SAMPLES_PER_WORKER = 16, 250
_SAVING = ("save_steps", "save_only_model")


def build_train_config(
    settings: Settings,
    *,
    dataset_dir: Path,
    output_dir: Path,
    model: str,
    deepspeed: Path | None,
    validation: bool,
    device: Literal["cpu", "cuda"],
    samples: int | None = None,
) -> dict[str, Any]:
    """Return LLaMA-Factory's settings, complete enough to run it by hand.

    `samples` limits the number of preprocessing workers. Raises `SettingsError` for bf16 on a CPU, and if all
    parameters are frozen.
    """
    algorithm = settings.algorithm_config
    _refuse_slow_bf16(algorithm, device)
    is_raw = settings.context_config.prompt_version is PromptVersion.WEBRL_RELEASED
    config: dict[str, Any] = {
        "model_name_or_path": model,
        "stage": "sft",
        "do_train": True,
        "mask_history": True,
        "dataset": TRAIN,
        "dataset_dir": str(dataset_dir),
        "template": RAW if is_raw else require_template(settings),
        "image_min_pixels": settings.image.image_min_pixels,
        "image_max_pixels": settings.image.image_max_pixels,
        "output_dir": str(output_dir),
        "overwrite_output_dir": False,
        **when(settings.policy_config.trust_remote_code, {"trust_remote_code": True}),
    }
    config |= _trainable_parameters(algorithm) | _copy(algorithm, _OPTIMISATION)
    config |= _evaluation(algorithm, validation) | {"save_total_limit": 1} | _copy(algorithm, _SAVING)
    for name in ("eval_steps", "save_steps"):
        if config.get(name, 1) < 1:  # of an epoch; the trainer's is a fraction of all steps, still below 1
            config[name] = min(config[name] / algorithm.num_train_epochs, math.nextafter(1, 0))
    config |= _loading(device, samples)
    config |= {
        "seed": settings.seed,
        "data_seed": settings.sampling_seed,
        "report_to": algorithm.report_to,
        "run_name": settings.log_config.run_name,
    }
    if deepspeed is not None:
        config["deepspeed"] = str(deepspeed)
    elif device == "cpu":
        config["use_cpu"] = True
    return config | settings.train.extra


def _refuse_slow_bf16(algorithm: AlgorithmSettings, device: str) -> None:
    if device == "cpu" and algorithm.bf16:
        raise SettingsError(
            "algorithm_config.bf16: training in bf16 on this CPU would be several hundred times slower",
            hint="repeat the command with -s algorithm_config.bf16=false",
        )


def build_wandb_env(settings: Settings, *, run_id: str | None) -> str:
    """Return `wandb_env.sh`: export lines that a shell can source, with quoted values. Never contains a key."""
    values = wandb_run_variables(settings, run_id)
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())


def _copy(algorithm: AlgorithmSettings, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(algorithm, name) for name in names}


def _trainable_parameters(algorithm: AlgorithmSettings) -> dict[str, Any]:
    frozen = _copy(algorithm, _FROZEN)
    if all(frozen.values()):
        raise SettingsError(
            "algorithm_config: the vision tower, the projector and the language model are all frozen: nothing learns",
            hint="repeat the command with -s algorithm_config.freeze_language_model=false",
        )
    if algorithm.finetuning_type == "full":
        return {"finetuning_type": "full"} | frozen
    adapter = {
        "lora_rank": algorithm.lora_rank,
        "lora_alpha": algorithm.lora_alpha or 2 * algorithm.lora_rank,
        "lora_target": algorithm.lora_target,
    }
    return {"finetuning_type": "lora"} | adapter | frozen


def _evaluation(algorithm: AlgorithmSettings, validation: bool) -> dict[str, Any]:
    if not (algorithm.do_eval and validation):  # LLaMA-Factory refuses to evaluate without a dataset
        return {"do_eval": False, "eval_strategy": "no"}
    options = {
        "do_eval": True,
        "eval_strategy": algorithm.eval_strategy,
        "eval_dataset": VALIDATION,
        "per_device_eval_batch_size": algorithm.per_device_train_batch_size,
    }
    return options if algorithm.eval_steps is None else options | {"eval_steps": algorithm.eval_steps}


def _loading(device: str, samples: int | None) -> dict[str, Any]:
    cores, on_gpu = len(os.sched_getaffinity(0)), device == "cuda"
    workers = min(_WORKERS, cores, cores if samples is None else samples // _SAMPLES_PER_WORKER)
    return {
        # one worker means none: a separate process would only cost its start
        "preprocessing_num_workers": workers if workers > 1 else None,
        "dataloader_num_workers": when(on_gpu, 2),
        "dataloader_pin_memory": on_gpu,
        # the images are among the columns that the model's signature lacks
        "remove_unused_columns": False,
    }


def refresh_train_config(run: RunDir, settings: Settings, sink: EventSink) -> None:
    """Update the training configuration to settings, or a DeepSpeed file, that changed since `prepare`.

    What the user edited (`train_config.yaml`, `deepspeed.json`) stays unchanged, with a note. Of a run that was made
    elsewhere, all that configures the training is written anew; raises `SettingsError` if its author edited it.
    """
    own, file = is_own(run.root), run.dataset / TRAIN_CONFIG
    prepared = find_prepared(run) if file.is_file() else None
    edited = prepared and ((_is_edited(file, prepared) and file) or find_edited_deepspeed(run.dataset, prepared))
    if edited and not own:
        raise refuse_foreign(run.root, f"{edited} was edited there")  # it can name code
    prepared = _find_next_dataset(run)
    if prepared is None:
        return
    if edited:
        sink(make_event("train_config", renewed=False, message=f"{edited} was edited by hand: trained as it stands"))
    config = plan_train_config(run, settings)
    is_current = config is None or _digest(_dump(config)) == prepared.config_digest
    has_changed = config is not None and (not is_current or _has_new_deepspeed(run, settings, prepared))
    if has_changed or not own:
        from webgym_cli.prepare.sft.sharegpt import build_dataset_info

        write_json(run.dataset / DATASET_INFO, build_dataset_info(validation=bool(prepared.val_samples)))
        write_training_files(run.dataset, run, settings, prepared)
    if has_changed:
        message = f"{file}: renewed, the settings or DeepSpeed's file have changed"
        sink(make_event("train_config", renewed=True, message=message))


def plan_train_config(run: RunDir, settings: Settings) -> dict[str, Any] | None:
    """Return what `train_config.yaml` has after `refresh_train_config`; None if the user edited it. Writes nothing."""
    prepared, file = _find_next_dataset(run), run.dataset / TRAIN_CONFIG
    if prepared is None or _is_edited(file, prepared):
        return None
    return _train_config(run, settings, prepared)


def _has_new_deepspeed(run: RunDir, settings: Settings, prepared: Prepared) -> bool:
    """Whether the settings' DeepSpeed file has another content than its copy, whose name stays the same."""
    copy, content = run.dataset / DEEPSPEED, _read_deepspeed(settings)
    if content is None or find_edited_deepspeed(run.dataset, prepared):
        return False
    return not copy.is_file() or copy.read_bytes() != content


def _is_edited(config: Path, prepared: Prepared) -> bool:
    return _digest(config.read_bytes()) != prepared.config_digest


def _read_deepspeed(settings: Settings) -> bytes | None:
    """Return the content of the DeepSpeed file that the settings name; None without one."""
    file = map_known(find_deepspeed_file, settings.algorithm_config.deepspeed_config_filename)
    return map_known(Path.read_bytes, file)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _find_next_dataset(run: RunDir) -> Prepared | None:
    """Return the record of the current iteration's dataset if its configuration exists."""
    prepared, file = find_prepared(run), run.dataset / TRAIN_CONFIG
    if prepared is None or not prepared.config_digest or not file.is_file() or prepared.iteration != version(run):
        return None
    return prepared


def write_training_files(folder: Path, run: RunDir, settings: Settings, prepared: Prepared) -> Prepared:
    """Write `deepspeed.json`, `wandb_env.sh`, `train_config.yaml` and, last, `prepared.json`."""
    deepspeed = _read_deepspeed(settings)
    if deepspeed is not None and not find_edited_deepspeed(folder, prepared):
        write_atomic(folder / DEEPSPEED, deepspeed)
        prepared = prepared.model_copy(update={"deepspeed_digest": _digest(deepspeed)})
    write_atomic(folder / WANDB_ENV, build_wandb_env(settings, run_id=run_id(run, settings)))
    config = _dump(_train_config(run, settings, prepared))
    write_atomic(folder / TRAIN_CONFIG, config)
    written = prepared.model_copy(update={"config_digest": _digest(config)})
    write_json(folder / PREPARED, written.model_dump(mode="json"))
    return written


def _dump(config: dict[str, Any]) -> bytes:
    import yaml  # a plan needs none

    return yaml.safe_dump(config, sort_keys=False, encoding="utf-8")


def _train_config(run: RunDir, settings: Settings, prepared: Prepared) -> dict[str, Any]:
    dataset = run.dataset.resolve()
    deepspeed = settings.algorithm_config.deepspeed_config_filename
    config = build_train_config(
        settings,
        dataset_dir=dataset,
        output_dir=run.checkpoints.resolve() / prepared.model_name,
        model=locate_model(policy_path(run, settings)),
        deepspeed=dataset / DEEPSPEED if deepspeed is not None else None,
        validation=prepared.val_samples > 0,
        device=resolve_device(settings.venvs.device),
        samples=prepared.train_samples,
    )
    return start_with_adapter(config, run, settings)


def start_with_adapter(config: dict[str, Any], run: RunDir, settings: Settings) -> dict[str, Any]:
    """Return LLaMA-Factory's settings, continuing the current policy's LoRA adapter if possible."""
    wanted = read_adapter(config)
    if wanted is None or "adapter_name_or_path" in config:
        return config
    start = plan_adapter(run, settings, wanted)
    if start.folder is None:
        return config
    return config | {"model_name_or_path": start.model, "adapter_name_or_path": str(start.folder)}
