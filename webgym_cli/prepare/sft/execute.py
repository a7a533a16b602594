"""Samples the dataset and writes it with its training configuration into a temporary folder that is then renamed."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.config.model import Settings
from webgym_cli.config.shipped import find_deepspeed_file
from webgym_cli.config.trust import is_own, refuse_foreign
from webgym_cli.errors import WebGymError
from webgym_cli.prepare.sft.convert import Converter
from webgym_cli.prepare.sft.plan import PreparePlan
from webgym_cli.prepare.sft.sampler import SampleResult, StepSampler
from webgym_cli.prepare.sft.sampling import resolve_seed, shuffle_by_seed
from webgym_cli.prepare.sft.sharegpt import build_dataset_info, dump_json_array, to_sharegpt
from webgym_cli.prepare.sft.template_fit import template_fit
from webgym_cli.prepare.sft.train_config import build_train_config, build_wandb_env
from webgym_cli.records.dataset import (
    DATASET_INFO,
    DEEPSPEED,
    PREPARED,
    TRAIN_CONFIG,
    TRAIN_FILE,
    VALIDATION_FILE,
    WANDB_ENV,
    Prepared,
)
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.records.sample import Sample
from webgym_cli.store.adapters import plan_adapter, read_adapter
from webgym_cli.store.checkpoints import locate_model, new_name, policy_name, policy_path, version
from webgym_cli.store.run import RunDir, now, run_id
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.util.files import read_json, replace_folder, write_atomic, write_json
from webgym_cli.util.gc_pause import rare_collections
from webgym_cli.venvs.locate import resolve_device


@rare_collections()
def execute(plan: PreparePlan, run: RunDir, settings: Settings, sink: EventSink) -> Prepared:
    """Write `llamafactory_data/`. The same plan and seed give the same samples, byte for byte.

    The plan's index must be open. Raises `StoreError`, and `WebGymError` if no sampled step is usable.
    """
    seed = resolve_seed(settings)
    tokens = ModelTokens(str(policy_path(run, settings)))
    converter = Converter(settings, tokens, ScreenshotStore(run.screenshots))
    drawn = StepSampler(plan, run, settings, converter, sink).execute()
    over_long = _report_over_long(converter, settings.algorithm_config.cutoff_len, sink)
    if not drawn.samples:
        reasons = ", ".join(f"{count} x {reason}" for reason, count in drawn.dropped.items() if count)
        raise WebGymError(f"{run.root}: every drawn step was dropped ({reasons})", hint="webgym prepare RUN --dry-run")
    samples = shuffle_by_seed(drawn.samples, f"{seed}/{plan.iteration}/order")
    train, validation = split(samples, settings.algorithm_config.held_out_ratio, f"{seed}/{plan.iteration}/split")
    left_out = {**_summarize_drops(plan, drawn), "over_cutoff_len": over_long}
    prepared = write_dataset(run, settings, train, validation, left_out, plan.digest(settings))
    sink(make_event("prepare", **prepared.model_dump(mode="json"), dropped_steps=drawn.dropped))
    return prepared


def read_prepared(run: RunDir) -> Prepared | None:
    """Return the record of the existing dataset, or None. Raises `StoreError` if it is damaged."""
    file = run.dataset / PREPARED
    return Prepared.model_validate(read_json(file)) if file.is_file() else None


def refresh_train_config(run: RunDir, settings: Settings, sink: EventSink) -> None:
    """Update the training configuration to settings, or a DeepSpeed file, that changed since `prepare`.

    What the user edited (`train_config.yaml`, `deepspeed.json`) stays unchanged, with a note. Of a run that was made
    elsewhere, all that configures the training is written anew; raises `SettingsError` if its author edited it.
    """
    own, file = is_own(run.root), run.dataset / TRAIN_CONFIG
    prepared = read_prepared(run) if file.is_file() else None
    edited = prepared and ((_is_edited(file, prepared) and file) or _find_edited_deepspeed(run.dataset, prepared))
    if edited and not own:
        raise refuse_foreign(run.root, f"{edited} was edited there")  # it can name code
    prepared = _find_next_dataset(run)
    if prepared is None:
        return
    if edited:
        sink(make_event("train_config", renewed=False, message=f"{edited} was edited by hand: trained as it stands"))
    has_changed = renewed_train_config(run, settings) is not None
    if has_changed or not own:
        write_json(run.dataset / DATASET_INFO, build_dataset_info(validation=bool(prepared.val_samples)))
        _write_training(run.dataset, run, settings, prepared)
    if has_changed:
        message = f"{file}: renewed, the settings or DeepSpeed's file have changed"
        sink(make_event("train_config", renewed=True, message=message))


def renewed_train_config(run: RunDir, settings: Settings) -> str | None:
    """Return the content that `refresh_train_config` would write; None if the file stays. Writes nothing."""
    prepared, file = _find_next_dataset(run), run.dataset / TRAIN_CONFIG
    if prepared is None or _is_edited(file, prepared):
        return None
    wanted = _train_config(run, settings, prepared)
    is_current = _digest(wanted.encode()) == prepared.config_digest
    return None if is_current and not _has_new_deepspeed(run, settings, prepared) else wanted


def _has_new_deepspeed(run: RunDir, settings: Settings, prepared: Prepared) -> bool:
    """Whether the settings' DeepSpeed file has another content than its copy, whose name stays the same."""
    copy, content = run.dataset / DEEPSPEED, _read_deepspeed(settings)
    if content is None or _find_edited_deepspeed(run.dataset, prepared):
        return False
    return not copy.is_file() or copy.read_bytes() != content


def _is_edited(config: Path, prepared: Prepared) -> bool:
    return _digest(config.read_bytes()) != prepared.config_digest


def _find_edited_deepspeed(dataset: Path, prepared: Prepared) -> Path | None:
    """Return `deepspeed.json` if it was edited by hand; unknown, thus None, in a dataset of an older version."""
    file = dataset / DEEPSPEED
    is_known = prepared.deepspeed_digest and file.is_file()
    return file if is_known and _digest(file.read_bytes()) != prepared.deepspeed_digest else None


def _read_deepspeed(settings: Settings) -> bytes | None:
    """Return the content of the DeepSpeed file that the settings name; None without one."""
    name = settings.algorithm_config.deepspeed_config_filename
    return find_deepspeed_file(name).read_bytes() if name is not None else None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _find_next_dataset(run: RunDir) -> Prepared | None:
    """Return the record of the current iteration's dataset if its configuration exists."""
    prepared, file = read_prepared(run), run.dataset / TRAIN_CONFIG
    if prepared is None or not prepared.config_digest or not file.is_file() or prepared.iteration != version(run):
        return None
    return prepared


def split(samples: Sequence[Sample], ratio: float, seed: str) -> tuple[list[Sample], list[Sample]]:
    """Split samples into training and validation; all steps of a trajectory go to the same side."""
    trajectories = sorted({sample.trajectory for sample in samples})
    most = max(0, len(trajectories) - 1)  # at least one trajectory must remain for training
    held_out = min(most, max(1, round(ratio * len(trajectories)))) if ratio else 0
    # By trajectory: steps of one episode share screenshots, so splitting them would leak into validation.
    chosen = set(shuffle_by_seed(trajectories, seed)[:held_out])
    train = [sample for sample in samples if sample.trajectory not in chosen]
    return train, [sample for sample in samples if sample.trajectory in chosen]


def write_dataset(
    run: RunDir,
    settings: Settings,
    train: list[Sample],
    validation: list[Sample],
    left_out: dict[str, Any],
    plan_digest: str,
) -> Prepared:
    """Write a dataset for the current iteration with its training configuration. Raises `StoreError`."""
    folder = run.dataset.with_name(f".{run.dataset.name}.new")
    shutil.rmtree(folder, ignore_errors=True)
    store = ScreenshotStore(run.screenshots)
    fit = template_fit(settings, ModelTokens(str(policy_path(run, settings))))
    files = {TRAIN_FILE: train, **({VALIDATION_FILE: validation} if validation else {})}
    digest = hashlib.sha256()
    for name, samples in files.items():
        content = dump_json_array(to_sharegpt(fit(sample), store.locate_beside) for sample in samples)
        digest.update(content.encode())
        write_atomic(folder / name, content)
    prepared = Prepared(
        iteration=version(run),
        model_name=new_name(run),
        parent=policy_name(run, settings),
        data_digest=digest.hexdigest(),
        plan_digest=plan_digest,
        train_samples=len(train),
        val_samples=len(validation),
        created_at=now(),
    )
    write_json(folder / DATASET_INFO, build_dataset_info(validation=bool(validation)))
    write_json(folder / "dropped.json", left_out)
    # prepared.json is written last and the folder renamed afterwards, so a dataset is complete or absent.
    prepared = _write_training(folder, run, settings, prepared)
    replace_folder(folder, run.dataset)
    return prepared


def _write_training(folder: Path, run: RunDir, settings: Settings, prepared: Prepared) -> Prepared:
    """Write `deepspeed.json`, `wandb_env.sh`, `train_config.yaml` and, last, `prepared.json`."""
    deepspeed = _read_deepspeed(settings)
    if deepspeed is not None and not _find_edited_deepspeed(folder, prepared):
        write_atomic(folder / DEEPSPEED, deepspeed)
        prepared = prepared.model_copy(update={"deepspeed_digest": _digest(deepspeed)})
    write_atomic(folder / WANDB_ENV, build_wandb_env(settings, run_id=run_id(run, settings)))
    config = _train_config(run, settings, prepared)
    write_atomic(folder / TRAIN_CONFIG, config)
    written = prepared.model_copy(update={"config_digest": _digest(config.encode())})
    write_json(folder / PREPARED, written.model_dump(mode="json"))
    return written


def _train_config(run: RunDir, settings: Settings, prepared: Prepared) -> str:
    """Return the text of `train_config.yaml`."""
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
    return yaml.safe_dump(start_with_adapter(config, run, settings), sort_keys=False)


def start_with_adapter(config: dict[str, Any], run: RunDir, settings: Settings) -> dict[str, Any]:
    """Return LLaMA-Factory's settings, continuing the current policy's LoRA adapter if possible."""
    wanted = read_adapter(config)
    if wanted is None or "adapter_name_or_path" in config:
        return config
    start = plan_adapter(run, settings, wanted)
    if start.folder is None:
        return config
    return config | {"model_name_or_path": start.model, "adapter_name_or_path": str(start.folder)}


def _summarize_drops(plan: PreparePlan, drawn: SampleResult) -> dict[str, Any]:
    """Return the content of `dropped.json` from plan and sampling: all filters in order."""
    counts = plan.counts
    return {
        "trajectories_read": counts.trajectories,
        "steps_read": counts.steps,
        "eligible_steps": plan.eligible,
        "samples": len(drawn.samples),
        "samples_by_iteration": {
            str(iteration): sum(sample.iteration == iteration for sample in drawn.samples) for iteration in plan.read
        },
        "dropped_trajectories": counts.dropped_trajectories,
        "steps_of_dropped_trajectories": counts.steps_of_dropped_trajectories,
        "failures": counts.failures,
        "dropped_steps": {**counts.dropped_steps, **drawn.dropped},
        "not_drawn_steps": plan.eligible - len(drawn.samples) - sum(drawn.dropped.values()),
        "damaged_lines": [*plan.damaged, *drawn.damaged],
    }


def _report_over_long(converter: Converter, limit: int, sink: EventSink) -> dict[str, int]:
    """Return how many sampled steps exceed the length limit and what happened to them; report it if there are any."""
    left_out = converter.over_long - converter.shortened
    counts = {
        "cutoff_len": limit,
        "steps": converter.over_long,
        "longest_tokens": converter.longest,
        "shortened": converter.shortened,
        "left_out": left_out,
    }
    if converter.over_long:
        message = (
            f"{converter.over_long} drawn steps have more tokens than algorithm_config.cutoff_len ({limit}), the "
            f"longest {converter.longest}: {converter.shortened} lost their oldest rounds, {left_out} were left out"
        )
        sink(make_event("over_cutoff_len", **counts, message=message))
    return counts
