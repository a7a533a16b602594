"""The groups that tasks fall into: apart from `records.task`, for the command line is quick without pydantic."""

from __future__ import annotations

from enum import StrEnum


class Split(StrEnum):
    """Which set a task or trajectory belongs to. Test tasks never reach training."""

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
        return cls.EASY if difficulty <= 3 else cls.MEDIUM if difficulty <= 6 else cls.HARD
