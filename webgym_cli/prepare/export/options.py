"""What an export is asked for. Light, because the command line reads it before any command runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from webgym_cli.errors import UsageError


class ExportFormat(StrEnum):
    """The form of what is written."""

    JSON = "json"
    """ShareGPT records as one JSON array."""
    JSONL = "jsonl"
    """ShareGPT records as JSON Lines."""
    MESSAGES = "messages"
    """Messages with role and content, `<image>` in the text and a list of images, as JSON Lines."""
    OPENAI = "openai"
    """OpenAI's messages, with images as parts, as JSON Lines."""
    HF = "hf"
    """A folder that `datasets.load_dataset` reads: Parquet shards with the images inside."""
    WEBDATASET = "webdataset"
    """A folder of tar shards with the images inside."""

    @property
    def needs_folder(self) -> bool:
        """Whether it is a folder and nothing else."""
        return self in (ExportFormat.HF, ExportFormat.WEBDATASET)

    @property
    def sharegpt(self) -> bool:
        """Whether its records are ShareGPT's."""
        return self in (ExportFormat.JSON, ExportFormat.JSONL)


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
    """How an export is written. Raises `UsageError` for what can't go together."""

    format: ExportFormat = ExportFormat.JSON
    unit: ExportUnit = ExportUnit.STEP
    objective: ExportObjective = ExportObjective.SFT
    copy_images: Path | None = None
    """A folder that gets copies of the screenshots; None: the run's own are named."""
    embed_images: bool = False
    """OpenAI's messages hold the images themselves, as data URLs."""
    shard_megabytes: int = 500
    """Size at which a new Parquet or tar file is begun, in units of 10^6 bytes."""
    max_pairs_per_task: int = 16
    """Pairs of one task at most."""

    def __post_init__(self) -> None:
        """Refuse what can't go together."""
        if self.objective is ExportObjective.DPO and self.unit is ExportUnit.TRAJECTORY:
            raise UsageError("--objective dpo pairs replies to one prompt: it has no --unit trajectory")
        if self.objective is ExportObjective.KTO and self.format is ExportFormat.OPENAI:
            raise UsageError("--format openai has no form for --objective kto", hint="--format messages")
        if self.embed_images and self.format is not ExportFormat.OPENAI:
            raise UsageError("--embed-images belongs to --format openai; hf and webdataset always hold the images")
        if self.copy_images and (self.embed_images or self.format.needs_folder):
            raise UsageError("--copy-images: the images are inside the records already")
