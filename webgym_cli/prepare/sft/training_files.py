"""The files that configure LLaMA-Factory's training of a prepared dataset, renewed when the settings change."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.config.shipped import find_deepspeed_file
from webgym_cli.config.trust import is_own, refuse_foreign
from webgym_cli.prepare.sft.train_config import build_train_config, build_wandb_env
from webgym_cli.records.dataset import DATASET_INFO, DEEPSPEED, PREPARED, TRAIN_CONFIG, WANDB_ENV, Prepared
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.store.adapters import plan_adapter, read_adapter
from webgym_cli.store.checkpoints import locate_model, policy_path, version
from webgym_cli.store.prepared import find_edited_deepspeed, find_prepared
from webgym_cli.store.run import RunDir, run_id
from webgym_cli.util.files import write_atomic, write_json
from webgym_cli.util.optional import map_known
from webgym_cli.venvs.locate import resolve_device


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
    """Return the content of `train_config.yaml`."""
    import yaml  # a plan needs none

    return yaml.safe_dump(config, sort_keys=False, encoding="utf-8")


def _train_config(run: RunDir, settings: Settings, prepared: Prepared) -> dict[str, Any]:
    """Return the configuration of the training of a dataset."""
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
