"""Task source and sampling."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from webgym_cli.config.section import ConfigSection
from webgym_cli.records.groups import DifficultyBand

# Tasks by the policy's newest success on them.
TaskPool = Literal["unseen", "hard", "normal", "easy"]
_SHARES: dict[TaskPool, float] = {"unseen": 0.25, "hard": 0.25, "normal": 0.4, "easy": 0.1}


class TasksSettings(ConfigSection):
    """The tasks of rollouts."""

    train: str = "miniwob:all"
    """Training tasks: a task file (JSON Lines, WebGym's fields or ours; questions also as a JSON array) or a task set
    with comma-separated names. `miniwob:all`: every MiniWoB page; `sites:all`: every task on the fixture sites;
    `webarena:fixture`: tasks in WebArena's format on the same sites; `webarena:browse-train`: 10 that ask for a
    category of the shop, `webarena:browse-test`: 10 with other wording; `arithmetic:train`: 160 questions with numeric
    answers, `arithmetic:test`: 40 others; `arithmetic:sums-train`: 240 of the sums, differences and products of two
    digits, `arithmetic:sums-test`: the other 60."""
    test: str = ""
    """Test tasks, in the same form; empty: the training tasks on seeds that training never uses."""
    test_seed: int | None = Field(default=None, ge=0, lt=2**32)
    """Seed of the test episodes; null: `seed`. Runs with the same one are evaluated on the same tasks and page seeds,
    whatever their `seed`."""
    sampler: Literal["uniform", "ratio", "pass_rate"] = "uniform"
    """Sampling of training tasks. `uniform`: all tasks equally; `ratio`: by difficulty band (`difficulty_ratio`);
    `pass_rate`: by the policy's success on each task in the newest iteration that had it (`pool_shares`)."""
    difficulty_ratio: dict[DifficultyBand, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    """Weights of `easy`, `medium` and `hard` for the sampler `ratio`, rounded by largest remainder."""
    pool_shares: dict[TaskPool, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        default_factory=_SHARES.copy
    )
    """Shares of the groups that the sampler `pass_rate` draws from each pool of tasks: up to a pass rate of
    0.2 a task is `hard`, from 0.8 on `easy`, else `normal`. A pool without tasks left leaves its share to the
    others."""
    no_repeats: bool = False
    """Sample training tasks without replacement over iterations, until all tasks were sampled."""

    @model_validator(mode="after")
    def _ratio_is_given(self) -> TasksSettings:
        if self.sampler == "ratio" and not any(self.difficulty_ratio.values()):
            raise ValueError('sampler "ratio" needs difficulty_ratio, like {"easy": 2, "medium": 5, "hard": 3}')
        if self.sampler == "pass_rate":
            if not any(self.pool_shares.values()):
                raise ValueError('sampler "pass_rate" needs a share in pool_shares')
            if self.no_repeats:
                raise ValueError('sampler "pass_rate" draws tasks again: it needs no_repeats=false')
        return self
