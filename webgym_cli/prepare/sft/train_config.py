"""LLaMA-Factory's `train_config.yaml` and the variables in `wandb_env.sh`. Pure."""

from __future__ import annotations

import math
import os
import shlex
from pathlib import Path
from typing import Any, Literal

from webgym_cli.config.algorithm_config import AlgorithmSettings
from webgym_cli.config.model import Settings
from webgym_cli.config.model_defaults import require_template
from webgym_cli.errors import SettingsError
from webgym_cli.records.dataset import TRAIN, VALIDATION
from webgym_cli.records.prompt_version import PromptVersion
from webgym_cli.util.optional import when
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
    """Return the settings of the trainable parameters."""
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
