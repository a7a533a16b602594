"""What an export is asked for. Light, because the command line reads it before any command runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from webgym_cli.errors import UsageError


class ExportUnit(StrEnum):
    """What a record holds."""

    STEP = "step"
    """One step: the prompt that was served, and the reply."""
    TRAJECTORY = "trajectory"
    """A whole episode as one conversation."""


class ExportObjective(StrEnum):
    """The training that the records are for."""

    SFT = "sft"
    """Imitation: the reply is right."""
    DPO = "dpo"
    """Pairs: a reply of a success against one of a failure, to the same prompt."""
    KTO = "kto"
    """Labels: the reply is of a success, or of a failure."""


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """How an export is written. Raises `UsageError` for options that exclude each other."""

    format: str = "json"
    """The name of a registered export format."""
    unit: ExportUnit = ExportUnit.STEP
    objective: ExportObjective = ExportObjective.SFT
    copy_images: Path | None = None
    """A folder that gets copies of the screenshots; None: records name the run's own."""
    embed_images: bool = False
    """Records hold the images themselves, as data URLs."""
    shard_megabytes: int = 500
    """Size at which a new shard is begun, in units of 10^6 bytes."""
    max_pairs_per_task: int = 16

    def __post_init__(self) -> None:
        if self.objective is ExportObjective.DPO and self.unit is ExportUnit.TRAJECTORY:
            raise UsageError("--objective dpo pairs replies to one prompt: it has no --unit trajectory")
        if self.copy_images and self.embed_images:
            raise UsageError("--copy-images: the images are inside the records already")
