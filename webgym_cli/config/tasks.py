"""Task source and sampling."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from webgym_cli.config.section import ConfigSection
from webgym_cli.records.task import DifficultyBand


class TasksSettings(ConfigSection):
    """Which tasks are rolled out."""

    train: str = "miniwob:all"
    """A task file (JSON Lines, WebGym's fields or ours), or `miniwob:` or `sites:` and names with commas between:
    `miniwob:all` for every MiniWoB page, `sites:all` for every task on the fixture sites; `webarena:fixture`: tasks in
    WebArena's form on the same sites; `arithmetic:train`: 160
    questions with numbers for answers, `arithmetic:test` 40 others; `arithmetic:sums-train`: 240 of the sums,
    differences and products of two digits, `arithmetic:sums-test` the other 60. A file with questions may be a JSON
    array too."""
    test: str = ""
    """The same for evaluation; empty: the training tasks on seeds that training never sees."""
    sampler: Literal["uniform", "ratio"] = "uniform"
    """`uniform`: every task alike; `ratio`: so many of each difficulty band (`difficulty_ratio`)."""
    difficulty_ratio: dict[DifficultyBand, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    """Weights of `easy`, `medium` and `hard` for the sampler `ratio`; shares by largest remainder."""
    no_repeats: bool = False
    """Draw no training task again in a later iteration before all tasks were drawn."""

    @model_validator(mode="after")
    def _ratio_is_given(self) -> TasksSettings:
        if self.sampler == "ratio" and not any(self.difficulty_ratio.values()):
            raise ValueError('sampler "ratio" needs difficulty_ratio, like {"easy": 2, "medium": 5, "hard": 3}')
        return self
