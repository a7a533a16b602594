"""The plan of a training, from the planning of an algorithm to its execution."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from webgym_cli.records.dataset import TrainingData
from webgym_cli.train.memory import TrainingMemory
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

    @property
    def options(self) -> dict[str, Any]:
        """The configuration that is run."""
        return self.config | self.overrides

    def text(self) -> str:
        """Return the content of `file`, in the format of its suffix."""
        if self.file.endswith(".json"):
            return json.dumps(self.options, indent=2) + "\n"
        import yaml  # slow to import

        return yaml.safe_dump(self.options, sort_keys=False, allow_unicode=True)


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
    training: TrainingIdentity
    """Data, settings, parent and processes of the training; decides whether it can be resumed."""
    total_steps: int
    """Expected optimizer steps, at least 1."""
    time_limit: float
    """Seconds."""
    mode: Mode = "fresh"
    source: Path | None = None
    """The checkpoint whose optimizer states are taken: the parent's or an interrupted training's."""
    adopted: Path | None = None
    """An interrupted training of the same dataset under another name."""
    record: dict[str, Any] = field(default_factory=dict)
    """Fields of the checkpoint's record that the backend knows: `objective`, `adapter`."""
    notes: tuple[str, ...] = ()
    """Remarks for the user."""
    disk_bytes: int | None = None
    """Estimated peak disk usage in bytes; None if the model's shapes are unknown."""
    memory: TrainingMemory | None = None
    """Estimated GPU memory without activations; None on a CPU, and if the model's shapes are unknown."""

    def to_json(self) -> dict[str, Any]:
        """Return the plan as data; it holds no secret."""
        return {
            "event": "plan",
            "stage": "train",
            "name": self.data.name,
            "iteration": self.data.iteration,
            "parent": self.data.parent,
            "algorithm": self.algorithm,
            "mode": self.mode,
            "argv": list(self.launch.argv),
            "cwd": str(self.folder),
            "env": self.launch.env,
            "overrides": self.launch.overrides,
            "source": map_known(str, self.source),
            "processes": self.training.world_size,
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
