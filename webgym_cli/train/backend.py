"""`TrainingBackend`: the interface between webgym and a trainer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.records.dataset import TrainingData
from webgym_cli.records.events import EventSink
from webgym_cli.store.run import RunDir
from webgym_cli.store.weights import Tensor
from webgym_cli.train.memory import TrainingMemory
from webgym_cli.train.training_plan import TrainPlan


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """Inputs of the planning of a training, apart from the files of the run."""

    run: RunDir
    settings: Settings
    environ: Mapping[str, str]
    """The environment of this process."""
    read_data: Callable[[], TrainingData]
    """Reads what `webgym prepare` wrote. Raises `MissingStageError`."""
    folder: Path
    """The folder of that data."""
    train_config: dict[str, Any] | None = None
    """The trainer's configuration beside the data at the start of the training; None: what the file has."""


# Decides how a training runs; changes nothing. Raises `MissingStageError` without prepared data, `VenvError` without
# the trainer.
PlanFn = Callable[[PlanInputs], TrainPlan]


# Raises `SettingsError` if training data differ from the served prompts; gets run, settings and log folder.
DataCheck = Callable[[RunDir, Settings, Path], Awaitable[None]]
# Changes the disk before the trainer starts; gets plan, settings, log file and sink, returns the plan that is run.
PlanStep = Callable[[TrainPlan, Settings, Path, EventSink], Awaitable[TrainPlan]]
# Makes the folder that is published of a finished checkpoint; gets plan, checkpoint, settings, log file and sink.
ExportFn = Callable[[TrainPlan, Path, Settings, Path, EventSink], Awaitable[Path]]


# Estimates the GPU memory without activations of a training with these settings: of the model's tensors, DeepSpeed's
# configuration and the number of processes. None: unknown.
MemoryFn = Callable[[Settings, list[Tensor], dict[str, Any] | None, int], TrainingMemory | None]


async def accept_data(run: RunDir, settings: Settings, log: Path) -> None:
    """Train on the data as it is."""


async def keep_checkpoint(plan: TrainPlan, checkpoint: Path, settings: Settings, log: Path, sink: EventSink) -> Path:
    """Publish the checkpoint as the trainer wrote it."""
    return checkpoint


@dataclass(frozen=True, slots=True)
class TrainingBackend:
    """A trainer. It leaves `checkpoint-N/` in the training's folder as HuggingFace's Trainer does.

    A finished one holds `*.safetensors`, and `trainer_state.json`, written last, whose `global_step` is `max_steps`.
    Progress comes from `trainer_log.jsonl` there (`train/progress.py`), if the trainer writes one.
    """

    plan: PlanFn
    data: str
    """The kind of training data (`prepare.data.PREPARED_DATA`)."""
    check: Callable[[Settings], None] = lambda settings: None
    """Raises `SettingsError` for settings that it can't train with, before anything is rolled out."""
    check_data: DataCheck = accept_data
    """Called after data was prepared, and before it is trained on."""
    build_start: PlanStep | None = None
    """Rebuilds the parent's optimizer states for a training that starts with them; None: the trainer reads them."""
    export: ExportFn = keep_checkpoint
    deepspeed_setting: str = ""
    """The setting that names DeepSpeed's configuration; empty without DeepSpeed."""
    adapter_rank: Callable[[Settings], int] = lambda settings: 0
    """The rank of the LoRA adapters that vLLM can serve by name while training goes on; 0: there are none."""
    estimate_memory: MemoryFn = lambda settings, model, deepspeed, processes: None
