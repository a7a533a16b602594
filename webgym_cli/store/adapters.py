"""The LoRA adapter of the current policy, which the next training continues and the server loads by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.errors import StoreError
from webgym_cli.records.checkpoint import LoraAdapter
from webgym_cli.store.checkpoints import checkpoints, current, folder, locate_model, policy_name, policy_path
from webgym_cli.store.run import RunDir
from webgym_cli.util.files import read_json

# Folder of a checkpoint with its separate LoRA adapter in PEFT's format, and the adapter's configuration file.
ADAPTER, ADAPTER_CONFIG = "adapter", "adapter_config.json"


@dataclass(frozen=True, slots=True)
class AdapterStart:
    """Initial adapter of a LoRA training."""

    model: str
    """The base model of the adapter: a folder or a hub id."""
    folder: Path | None
    """The adapter to continue; None: a new one."""
    adapter: LoraAdapter
    """The adapter that the training produces."""


def plan_adapter(run: RunDir, settings: Settings, wanted: LoraAdapter, *, renew: bool = False) -> AdapterStart:
    """Return the start of the next LoRA training: the current policy's adapter if it matches `wanted`.

    All versions then share one base model as long as the adapter's settings stay the same. Otherwise, and with `renew`,
    a new adapter is trained on the policy's weights.
    """
    newest, current_adapter = current(run), find_adapter(run, settings)
    if newest and newest.adapter and current_adapter and newest.adapter.goes_on(wanted) and not renew:
        return AdapterStart(*current_adapter, newest.adapter)
    model = locate_model(policy_path(run, settings))
    return AdapterStart(model, None, wanted.model_copy(update={"base": policy_name(run, settings)}))


def read_adapter(config: Mapping[str, Any]) -> LoraAdapter | None:
    """Return the adapter described by LLaMA-Factory's settings, without a base model; None without LoRA."""
    if config.get("finetuning_type") != "lora":
        return None
    rank = int(config.get("lora_rank") or 8)
    return LoraAdapter(
        base="",
        rank=rank,
        alpha=int(config.get("lora_alpha") or 2 * rank),
        targets=str(config.get("lora_target") or "all"),
        vision=not config.get("freeze_vision_tower", True),
    )


def find_adapter(run: RunDir, settings: Settings) -> tuple[str, Path] | None:
    """Return the current policy's base model and LoRA adapter; None if either is missing."""
    newest = current(run)
    if newest is None or newest.adapter is None:
        return None
    adapter, base = folder(run, newest) / ADAPTER, newest.adapter.base
    base_checkpoint = next((one for one in checkpoints(run) if one.name == base), None)
    model = Path(settings.policy_config.base_model) if base_checkpoint is None else folder(run, base_checkpoint)
    known = base_checkpoint.weights if base_checkpoint else base == settings.policy_config.base_model
    if not known or not adapter.is_dir():
        return None
    return locate_model(model), adapter.resolve()


def is_plain_adapter(folder: Path) -> bool:
    """Whether an adapter is only B times A on linear layers, as vLLM requires; False if it can't be read."""
    try:
        config = read_json(folder / ADAPTER_CONFIG)
        extra = (config.get("use_dora"), config.get("modules_to_save"), config.get("bias", "none") != "none")
    except (StoreError, AttributeError):
        return False
    return not any(extra)
