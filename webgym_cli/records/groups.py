"""Enumerations of task groups, separate from `records.task` so that the command line can avoid importing pydantic."""

from __future__ import annotations

from enum import StrEnum


class Split(StrEnum):
    """Split of a task or trajectory. Test tasks are never trained on."""

    TRAIN = "train"
    TEST = "test"


class DifficultyBand(StrEnum):
    """WebGym's difficulty bands, by number of facts: 1-3, 4-6, 7 and more."""

    EASY = "easy"
    MEDIUM = "medium"
    HARD = "hard"

    @classmethod
    def of(cls, difficulty: int) -> DifficultyBand:
        """Return the band of a difficulty (number of facts, at least 1)."""
        if difficulty <= 3:
            return cls.EASY
        return cls.MEDIUM if difficulty <= 6 else cls.HARD
