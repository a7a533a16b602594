"""Filters of trajectories, as an SQL condition over the index's view `trajectories`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from webgym_cli.records.task import DifficultyBand, Split

# Matches every kind of failure.
ANY = "any"


@dataclass(frozen=True, slots=True)
class TrajectoryQuery:
    """Filter of trajectories: all set conditions must hold; None: any value."""

    split: Split | None = None
    iteration: int | None = None
    task: str | None = None
    """A task's id."""
    reward: float | None = None
    """The reward after the newest judgement."""
    failure: str | None = None
    """A kind of failure, or `any`."""
    site: str | None = None
    """A registrable domain, or an environment's name if its tasks have no URL."""
    band: DifficultyBand | None = None
    expression: str | None = None
    """An SQL condition over `trajectories`, checked by `Index.check_where`."""

    def where(self) -> tuple[str, list[Any]]:
        """Return the condition for WHERE or FILTER, and the values of its `?` placeholders in order."""
        conditions: list[str] = []
        values: list[Any] = []
        for column in ("split", "iteration", "task", "reward", "site", "band"):
            if (value := getattr(self, column)) is not None:
                conditions.append(f"{column} = ?")
                values.append(str(value) if column in ("split", "band") else value)
        if self.failure == ANY:
            conditions.append("failure IS NOT NULL")
        elif self.failure is not None:
            conditions.append("failure = ?")
            values.append(self.failure)
        if self.expression is not None:
            conditions.append(f"({self.expression})")
        return " AND ".join(conditions) or "true", values
