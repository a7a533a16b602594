"""`TrainingBackend`: the interface between webgym and a trainer, and the plan of a training."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from webgym_cli.config.model import Settings
from webgym_cli.records.dataset import TrainingData
from webgym_cli.records.events import EventSink
from webgym_cli.store.run import RunDir
from webgym_cli.store.weights import Tensor
from webgym_cli.train.footprint import TrainingMemory
from webgym_cli.train.working_dir import TrainingIdentity
from webgym_cli.util.optional import map_known
from webgym_cli.venvs.locate import Device

# fresh: a new optimizer; carried: the parent's moments; continued: an interrupted training of this very dataset;
# finished: one that made all its steps and was not published.
Mode = Literal["fresh", "carried", "continued", "finished"]


@dataclass(frozen=True, slots=True)
class Placement:
    """The processes of a training."""

    device: Device
    local: int = 1
    """Processes on each node."""
    nodes: int = 1
    """Number of nodes, this one included."""

    @property
    def world_size(self) -> int:
        """Processes on all nodes."""
        return self.local * self.nodes


@dataclass(frozen=True, slots=True)
class TrainerLaunch:
    """How the trainer is started on this node."""

    python: Path
    """The train venv's interpreter."""
    argv: tuple[str, ...]
    """The command that each node runs in the training's folder, by its own interpreter. With several nodes torchrun
    takes the rendezvous from variables (`ray_nodes.build_rendezvous`)."""
    config: dict[str, Any]
    """The trainer's configuration, in its own form."""
    file: str
    """The name of the configuration that is run, in the training's folder."""
    placement: Placement
    env: dict[str, str] = field(default_factory=dict)
    """Variables added to the inherited ones."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Changes to `config` in the configuration that is run."""
    deepspeed: dict[str, Any] | None = None
    """DeepSpeed's settings; None without DeepSpeed."""


@dataclass(frozen=True, slots=True)
class TrainingStart:
    """What a training starts from."""

    training: TrainingIdentity
    """Data, settings, parent and processes of the training; decides whether it can be resumed."""
    mode: Mode = "fresh"
    source: Path | None = None
    """The checkpoint whose optimizer states are taken: the parent's or an interrupted training's."""
    adopted: Path | None = None
    """An interrupted training of the same dataset under another name."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Further changes to the trainer's configuration."""
    note: str = ""
    """Remark for the user."""

    @property
    def keeps_folder(self) -> bool:
        """Whether an interrupted training's folder is used as it is."""
        return self.mode in ("continued", "finished")


@dataclass(frozen=True, slots=True)
class TrainPlan:
    """The plan of a training."""

    data: TrainingData
    """The data, the model that is trained on it, and the name of the checkpoint."""
    algorithm: str
    """The name that `train.algorithm` has for this iteration."""
    folder: Path
    """The working folder until the training is published."""
    launch: TrainerLaunch
    start: TrainingStart
    total_steps: int
    """Expected optimizer steps, at least 1."""
    time_limit: float
    """Seconds."""
    record: dict[str, Any] = field(default_factory=dict)
    """Fields of the checkpoint's record that the backend knows: `objective`, `adapter`."""
    notes: tuple[str, ...] = ()
    """Remarks for the user."""
    disk_bytes: int | None = None
    """Estimated peak disk usage in bytes; None if the model's shapes are unknown."""
    memory: TrainingMemory | None = None
    """Estimated GPU memory without activations; None on a CPU, and if the model's shapes are unknown."""

    @property
    def options(self) -> dict[str, Any]:
        """The trainer's configuration that is run."""
        return self.launch.config | self.overrides

    @property
    def overrides(self) -> dict[str, Any]:
        """Changes to the trainer's configuration."""
        return self.launch.overrides | self.start.overrides

    def text(self) -> str:
        """Return the content of the configuration file, in the format of its suffix."""
        if self.launch.file.endswith(".json"):
            return json.dumps(self.options, indent=2) + "\n"
        import yaml  # slow to import

        return yaml.safe_dump(self.options, sort_keys=False, allow_unicode=True)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as data; it holds no secret."""
        return {
            "event": "plan",
            "stage": "train",
            "name": self.data.name,
            "iteration": self.data.iteration,
            "parent": self.data.parent,
            "algorithm": self.algorithm,
            "mode": self.start.mode,
            "argv": list(self.launch.argv),
            "cwd": str(self.folder),
            "env": self.launch.env,
            "overrides": self.overrides,
            "source": map_known(str, self.start.source),
            "processes": self.start.training.world_size,
            "nodes": self.launch.placement.nodes,
            "total_steps": self.total_steps,
            "time_limit_seconds": self.time_limit,
            "disk_bytes": self.disk_bytes,
            "memory": map_known(TrainingMemory.to_json, self.memory),
            "notes": list(self.notes),
        }


def fresh_note(reason: str) -> str:
    """Return the note that the optimizer is new."""
    return f"the optimizer starts fresh: {reason}"


class PreparedFiles(Protocol):
    """What `webgym prepare` wrote (`prepare.data.PreparedData`)."""

    def folder(self, run: RunDir) -> Path:
        """Return the folder."""

    def read(self, run: RunDir, settings: Settings) -> TrainingData:
        """Return the current policy's data. Raises `MissingStageError`."""

    def plan_config(self, run: RunDir, settings: Settings) -> dict[str, Any] | None:
        """Return the trainer's configuration at the start of the training; None: what the file has."""


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """Inputs of the planning of a training, apart from the files of the run."""

    run: RunDir
    settings: Settings
    environ: Mapping[str, str]
    """The environment of this process."""
    prepared: PreparedFiles


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
    Progress comes from `trainer_log.jsonl` there (`train/trainer_log.py`), if the trainer writes one.
    """

    plan: PlanFn
    data: str
    """The kind of training data (`prepare.data.PREPARED_DATA`)."""
    check: Callable[[Settings], None] = lambda settings: None
    """Raises `SettingsError` for settings that it can't train with, before anything is rolled out."""
    check_run: Callable[[RunDir], None] = lambda run: None
    """Raises `UsageError` for a run that it can't train in, when a loop or a training is planned."""
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
