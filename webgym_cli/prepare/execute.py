"""Draws the dataset and writes it with its training configuration: into a folder beside, then one rename."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from webgym_cli.agent.tokens import ModelTokens
from webgym_cli.config.model import Settings
from webgym_cli.config.shipped import deepspeed_file
from webgym_cli.errors import WebGymError
from webgym_cli.prepare.convert import Converter
from webgym_cli.prepare.filters import Drop
from webgym_cli.prepare.plan import Candidate, PreparePlan, eligible
from webgym_cli.prepare.sampling import quotas, shuffled
from webgym_cli.prepare.sharegpt import dataset_info, to_sharegpt
from webgym_cli.prepare.train_config import train_config, wandb_env
from webgym_cli.records.dataset import DEEPSPEED, PREPARED, TRAIN_CONFIG, WANDB_ENV, Prepared
from webgym_cli.records.events import EventSink
from webgym_cli.records.sample import Sample
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.roles.locate import resolve_device
from webgym_cli.store.buffer import scan
from webgym_cli.store.checkpoints import current, policy_path, version
from webgym_cli.store.files import read_json, replace_folder, write_atomic, write_json
from webgym_cli.store.run import RunDir, now
from webgym_cli.store.screenshots import ScreenshotStore

TRAIN_FILE, VALIDATION_FILE = "finetune_train.json", "finetune_val.json"
PROGRESS_EVERY = 50
"""Samples between two progress events."""


@dataclass(slots=True)
class Draw:
    """The drawn samples and what the draw left out."""

    samples: list[Sample] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    shortened: int = 0


def execute(plan: PreparePlan, run: RunDir, settings: Settings, sink: EventSink) -> Prepared:
    """Write `llamafactory_data/`. The same plan and seed give the same samples, byte for byte."""
    seed = _seed(settings)
    tokens = ModelTokens(str(policy_path(run, settings)))
    drawn = draw(plan, run, settings, Converter(settings, tokens, ScreenshotStore(run.screenshots)), sink)
    if not drawn.samples:
        reasons = ", ".join(f"{count} x {reason}" for reason, count in drawn.dropped.items())
        raise WebGymError(f"{run.root}: every drawn step was dropped ({reasons})", hint="webgym prepare RUN --dry-run")
    samples = shuffled(drawn.samples, f"{seed}/{plan.iteration}/order")
    train, validation = split(samples, settings.algorithm_config.val_split_ratio, f"{seed}/{plan.iteration}/split")
    prepared = _write(plan, run, settings, train, validation, drawn)
    sink({"event": "prepare", **prepared.model_dump(mode="json"), "dropped_steps": dict(drawn.dropped)})
    return prepared


def read_prepared(run: RunDir) -> Prepared | None:
    """Return the dataset that is there, or None. Raises `StoreError` when its record is damaged."""
    file = run.dataset / PREPARED
    return Prepared.model_validate(read_json(file)) if file.is_file() else None


def renew_training(run: RunDir, settings: Settings, sink: EventSink) -> None:
    """Bring the training's configuration up to settings that changed since `prepare`, so that they reach training.

    A `train_config.yaml` that a person edited stays as it is, and that is said.
    """
    prepared, file = read_prepared(run), run.dataset / TRAIN_CONFIG
    if prepared is None or not prepared.config_digest or not file.is_file() or prepared.iteration != version(run):
        return
    wanted = hashlib.sha256(_train_config(run, settings, prepared).encode()).hexdigest()
    if hashlib.sha256(file.read_bytes()).hexdigest() != prepared.config_digest:
        sink({"event": "train_config", "renewed": False, "message": f"{file} was edited by hand: trained as it stands"})
    elif wanted != prepared.config_digest:
        _write_training(run.dataset, run, settings, prepared)
        sink({"event": "train_config", "renewed": True, "message": f"{file}: renewed, the settings have changed"})


def draw(plan: PreparePlan, run: RunDir, settings: Settings, converter: Converter, sink: EventSink) -> Draw:
    """Draw samples by iteration until each has its share; what can't be used makes room for the next."""
    algorithm = settings.algorithm_config
    reader = _Reader(run, {candidate.trajectory for candidate in plan.candidates})
    available = eligible(plan.read, plan.candidates)
    waiting = {iteration: _order(plan.candidates, iteration, settings) for iteration in available}
    taken: dict[int, list[Sample]] = {iteration: [] for iteration in available}
    drawn = Draw()
    while True:
        goal = quotas(available, algorithm.positive_samples_to_train, algorithm.recency_bias_power)
        short = next((iteration for iteration in sorted(goal) if len(taken[iteration]) < goal[iteration]), None)
        if short is None:
            break
        candidate = waiting[short].pop()
        converted = converter.convert(reader.get(candidate), candidate.step)
        if isinstance(converted, Drop):
            drawn.dropped[converted.value] += 1
            available[short] -= 1
        else:
            taken[short].append(converted)
            done, total = sum(map(len, taken.values())), sum(goal.values())
            if done % PROGRESS_EVERY == 0 or done == total:
                sink({"event": "prepare_progress", "bar": "prepare", "done": done, "total": total})
    drawn.samples = [sample for iteration in sorted(taken) for sample in taken[iteration]]
    drawn.shortened = converter.shortened
    return drawn


def split(samples: Sequence[Sample], ratio: float, seed: str) -> tuple[list[Sample], list[Sample]]:
    """Return training and validation samples; a trajectory's steps stay on one side."""
    trajectories = sorted({sample.trajectory for sample in samples})
    most = max(0, len(trajectories) - 1)  # something must be left to train on
    held_out = min(most, max(1, round(ratio * len(trajectories)))) if ratio else 0
    chosen = set(shuffled(trajectories, seed)[:held_out])
    train = [sample for sample in samples if sample.trajectory not in chosen]
    return train, [sample for sample in samples if sample.trajectory in chosen]


class _Reader:
    """Reads the wanted trajectories, an iteration at a time, when the first of it is asked for."""

    def __init__(self, run: RunDir, wanted: set[str]) -> None:
        self._run = run
        self._wanted = wanted
        self._loaded: dict[int, dict[str, Trajectory]] = {}

    def get(self, candidate: Candidate) -> Trajectory:
        if candidate.iteration not in self._loaded:
            found = scan(self._run, Split.TRAIN, candidate.iteration)
            self._loaded[candidate.iteration] = {item.id: item for item in found if item.id in self._wanted}
        return self._loaded[candidate.iteration][candidate.trajectory]


def _seed(settings: Settings) -> int:
    return settings.seed if settings.algorithm_config.seed is None else settings.algorithm_config.seed


def _order(candidates: Sequence[Candidate], iteration: int, settings: Settings) -> list[Candidate]:
    of_iteration = sorted(candidate for candidate in candidates if candidate.iteration == iteration)
    return shuffled(of_iteration, f"{_seed(settings)}/{iteration}/draw")


def _write(
    plan: PreparePlan, run: RunDir, settings: Settings, train: list[Sample], validation: list[Sample], drawn: Draw
) -> Prepared:
    folder = run.dataset.with_name(f".{run.dataset.name}.new")
    shutil.rmtree(folder, ignore_errors=True)
    store = ScreenshotStore(run.screenshots.resolve())
    files = {TRAIN_FILE: train, **({VALIDATION_FILE: validation} if validation else {})}
    digest = hashlib.sha256()
    for name, samples in files.items():
        content = json.dumps([to_sharegpt(sample, lambda sha: str(store.path(sha))) for sample in samples], indent=2)
        digest.update(content.encode())
        write_atomic(folder / name, content)
    newest = current(run)
    prepared = Prepared(
        iteration=plan.iteration,
        model_name=_model_name(run),
        parent=newest.name if newest else settings.policy_config.base_model,
        data_digest=digest.hexdigest(),
        plan_digest=plan.digest(settings),
        train_samples=len(train),
        val_samples=len(validation),
        created_at=now(),
    )
    write_json(folder / "dataset_info.json", dataset_info(validation=bool(validation)))
    write_json(folder / "dropped.json", _dropped(plan, drawn))
    prepared = _write_training(folder, run, settings, prepared)
    replace_folder(folder, run.dataset)
    return prepared


def _write_training(folder: Path, run: RunDir, settings: Settings, prepared: Prepared) -> Prepared:
    """Write `deepspeed.json`, `wandb_env.sh`, `train_config.yaml` and, last, `prepared.json`."""
    deepspeed = settings.algorithm_config.deepspeed_config_filename
    if deepspeed is not None:
        write_atomic(folder / DEEPSPEED, deepspeed_file(deepspeed).read_bytes())
    write_atomic(folder / WANDB_ENV, wandb_env(settings, run_id=None))
    config = _train_config(run, settings, prepared)
    write_atomic(folder / TRAIN_CONFIG, config)
    written = prepared.model_copy(update={"config_digest": hashlib.sha256(config.encode()).hexdigest()})
    write_json(folder / PREPARED, written.model_dump(mode="json"))
    return written


def _train_config(run: RunDir, settings: Settings, prepared: Prepared) -> str:
    """Return the text of `train_config.yaml`."""
    dataset, model = run.dataset.resolve(), policy_path(run, settings)
    deepspeed = settings.algorithm_config.deepspeed_config_filename
    config = train_config(
        settings,
        dataset_dir=dataset,
        output_dir=run.checkpoints.resolve() / prepared.model_name,
        model=str(model.resolve() if model.is_dir() else model),
        deepspeed=dataset / DEEPSPEED if deepspeed is not None else None,
        validation=prepared.val_samples > 0,
        device=resolve_device(settings.roles.device),
        samples=prepared.train_samples,
    )
    return yaml.safe_dump(config, sort_keys=False)


def _dropped(plan: PreparePlan, drawn: Draw) -> dict[str, Any]:
    return {
        "trajectories_read": plan.trajectories,
        "eligible_steps": len(plan.candidates),
        "samples": len(drawn.samples),
        "samples_with_shortened_history": drawn.shortened,
        "dropped_trajectories": plan.dropped_trajectories,
        "failures": plan.failures,
        "dropped_steps": dict(sorted((Counter(plan.dropped_steps) + drawn.dropped).items())),
        "not_drawn_steps": len(plan.candidates) - len(drawn.samples) - sum(drawn.dropped.values()),
        "damaged_lines": list(plan.damaged),
    }


def _model_name(run: RunDir) -> str:
    """Return a name of this second that no checkpoint has, nor the rest of one."""
    moment = datetime.now(UTC)
    while any(run.checkpoints.glob(f"model_{moment:%Y%m%d_%H%M%S}*")):
        moment = datetime.fromtimestamp(moment.timestamp() + 1, UTC)
    return f"model_{moment:%Y%m%d_%H%M%S}"
