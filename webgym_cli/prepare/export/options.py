"""Options of an export. Without heavy imports, since the command line reads them before any command runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from webgym_cli.errors import UsageError


class ExportUnit(StrEnum):
    """Content of a record."""

    STEP = "step"
    """One step: the prompt as sent, and the response."""
    TRAJECTORY = "trajectory"
    """A whole episode as one conversation."""


class ExportObjective(StrEnum):
    """Training objective of the records."""

    SFT = "sft"
    """Imitation: the response is the target."""
    DPO = "dpo"
    """Pairs: responses of a success and of a failure to the same prompt."""
    KTO = "kto"
    """Labels: whether the response is from a success."""


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Output options of an export. Raises `UsageError` for incompatible options."""

    format: str = "json"
    unit: ExportUnit = ExportUnit.STEP
    objective: ExportObjective = ExportObjective.SFT
    copy_images: Path | None = None
    """Folder for copies of the screenshots; None: records refer to the run's own."""
    embed_images: bool = False
    """Embed images in the records as data URLs."""
    shard_megabytes: int | None = None
    """Maximum shard size in units of 10^6 bytes; None: 500."""
    max_pairs_per_task: int | None = None
    """None: 16."""

    def __post_init__(self) -> None:
        if self.objective is ExportObjective.DPO and self.unit is ExportUnit.TRAJECTORY:
            raise UsageError("--objective dpo pairs replies to one prompt: it has no --unit trajectory")
        if self.max_pairs_per_task and self.objective is not ExportObjective.DPO:
            raise UsageError("--max-pairs-per-task has no effect without --objective dpo")
        if self.copy_images and self.embed_images:
            raise UsageError("--copy-images: the images are inside the records already")
