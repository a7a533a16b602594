"""The plan of a training, from the planning of an algorithm to its execution."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from webgym_cli.records.checkpoint import LoraAdapter
from webgym_cli.train.memory import TrainingMemory
from webgym_cli.train.working_dir import TrainingIdentity
from webgym_cli.venvs.locate import Device

# LLaMA-Factory's overrides with carried optimizer states: carried moments need no second warm-up.
CARRYING = ("resume_from_checkpoint", "warmup_steps")

# fresh: a new optimizer; carried: the parent's moments; continued: an interrupted training of this very dataset;
# finished: one that made all its steps and was not published.
Mode = Literal["fresh", "carried", "continued", "finished"]


@dataclass(frozen=True, slots=True)
class TrainPlan:
    """The plan of a training."""

    name: str
    """The folder's name under `checkpoints/`."""
    iteration: int
    """The iteration whose data is trained on."""
    parent: str
    """The model that it starts from: a checkpoint's name, or the base model."""
    model: str
    """Its folder or hub id."""
    algorithm: str
    """The name that `train.algorithm` has for this iteration."""
    python: Path
    """The train venv's interpreter."""
    device: Device
    argv: tuple[str, ...]
    """The command; it runs in `folder`."""
    env: dict[str, str]
    """Variables added to the inherited ones."""
    folder: Path
    """The working folder until the training is published."""
    config: dict[str, Any]
    """LLaMA-Factory's `train_config.yaml`, or our own trainer's configuration (`trainer.options.TrainerOptions`)."""
    launch_file: str
    """The name of the configuration that is run, in `folder`."""
    deepspeed: dict[str, Any] | None
    """DeepSpeed's settings; None without DeepSpeed."""
    training: TrainingIdentity
    """Data, settings, parent and processes of the training; decides whether it can be resumed."""
    total_steps: int
    """Expected optimizer steps, at least 1."""
    time_limit: float
    """Seconds."""
    mode: Mode = "fresh"
    objective: dict[str, Any] = field(default_factory=dict)
    """Settings of the objective, stored in the checkpoint's record."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Changes to `config` in the configuration that is run."""
    nodes: int = 1
    """Number of nodes, this one included."""
    adapter: LoraAdapter | None = None
    """The LoRA adapter that is trained; None: none, or one named by the user."""
    source: Path | None = None
    """The checkpoint whose optimizer states are taken: the parent's or an interrupted training's."""
    start: Path | None = None
    """Folder in which the starting state is built; None if the trainer loads it from `source`."""
    adopted: Path | None = None
    """An interrupted training of the same dataset under another name."""
    notes: tuple[str, ...] = ()
    """Remarks for the user."""
    disk_bytes: int | None = None
    """Estimated peak disk usage in bytes; None if the model's shapes are unknown."""
    memory: TrainingMemory | None = None
    """Estimated GPU memory without activations; None on a CPU, and if the model's shapes are unknown."""

    @property
    def launch(self) -> dict[str, Any]:
        """The configuration that is run."""
        return self.config | self.overrides

    def launch_text(self) -> str:
        """Return the content of `launch_file`, in the format of its suffix."""
        if self.launch_file.endswith(".json"):
            return json.dumps(self.launch, indent=2) + "\n"
        return yaml.safe_dump(self.launch, sort_keys=False, allow_unicode=True)

    @property
    def unpickles(self) -> bool:
        """Whether the trainer reads states of DeepSpeed, whose pickles are not checked."""
        return self.deepspeed is not None and self.mode in ("continued", "carried") and self.start is None

    @property
    def lora(self) -> bool:
        """Whether an adapter is trained, which is merged at the end."""
        return self.config.get("finetuning_type") == "lora"

    def to_json(self) -> dict[str, Any]:
        """Return the plan as data; it holds no secret."""
        return {
            "event": "plan",
            "stage": "train",
            "name": self.name,
            "iteration": self.iteration,
            "parent": self.parent,
            "algorithm": self.algorithm,
            "mode": self.mode,
            "argv": list(self.argv),
            "cwd": str(self.folder),
            "env": self.env,
            "overrides": self.overrides,
            "source": None if self.source is None else str(self.source),
            "processes": self.training.world_size,
            "nodes": self.nodes,
            "total_steps": self.total_steps,
            "time_limit_seconds": self.time_limit,
            "disk_bytes": self.disk_bytes,
            "memory": self.memory.to_json() if self.memory else None,
            "notes": list(self.notes),
        }


def without_states(plan: TrainPlan, reason: str) -> TrainPlan:
    """Return a carried plan as a fresh one: the parent's weights with a new optimizer."""
    kept = {key: value for key, value in plan.overrides.items() if key not in CARRYING}
    training = plan.training.model_copy(update={"carried": False})
    notes = (*plan.notes, fresh_note(reason))
    return replace(plan, mode="fresh", source=None, start=None, overrides=kept, training=training, notes=notes)


def fresh_note(reason: str) -> str:
    """Return the note that the optimizer is new."""
    return f"the optimizer starts fresh: {reason}"
