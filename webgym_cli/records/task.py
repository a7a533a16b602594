"""What an agent is asked to do."""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal

from pydantic import Field

from webgym_cli.records.base import Record

EnvironmentName = Literal["miniwob", "web", "webarena", "tools", "sites"]
"""The environments that a task can name."""


class Split(StrEnum):
    """Which set a task or trajectory belongs to. Test tasks never reach training."""

    TRAIN = "train"
    TEST = "test"


class Band(StrEnum):
    """WebGym's difficulty bands, by number of facts: 1-3, 4-6, 7 and more."""

    EASY = "easy"
    MEDIUM = "medium"
    HARD = "hard"

    @classmethod
    def of(cls, difficulty: int) -> Band:
        """Return the band of a difficulty (number of facts, at least 1)."""
        return cls.EASY if difficulty <= 3 else cls.MEDIUM if difficulty <= 6 else cls.HARD


class Task(Record):
    """One task. Its `key` is a hash of its content, so that equal tasks are equal in every run."""

    id: str = Field(min_length=1)
    """The name that people use: for MiniWoB the page's name."""
    instruction: str = ""
    """What to do. Empty where the environment draws it when the episode starts (MiniWoB)."""
    start_url: str = ""
    """Where the episode starts; for MiniWoB the page's file name."""
    environment: EnvironmentName = "miniwob"
    """Which environment runs it."""
    difficulty: int = Field(default=1, ge=1)
    """WebGym's difficulty: the number of facts to find."""
    rubric: tuple[str, ...] = ()
    """The facts that a judge checks, one text each."""
    reference_answer: str | None = None
    """The expected answer, where there is one."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Every field that we don't know, kept and handed to reward functions by name."""

    @property
    def band(self) -> Band:
        """The difficulty band."""
        return Band.of(self.difficulty)

    @cached_property
    def key(self) -> str:
        """16 hex digits of the SHA-256 of the content, in whichever order it was written."""
        content = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]
