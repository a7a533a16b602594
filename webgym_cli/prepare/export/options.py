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


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Output options of an export. Raises `UsageError` for incompatible options."""

    format: str = "json"
    """Name of a registered export format."""
    unit: ExportUnit = ExportUnit.STEP
    copy_images: Path | None = None
    """Folder for copies of the screenshots; None: records refer to the run's own."""
    embed_images: bool = False
    """Embed images in the records as data URLs."""

    def __post_init__(self) -> None:
        if self.copy_images and self.embed_images:
            raise UsageError("--copy-images: the images are inside the records already")
