"""Paired comparison of two iterations on the same tasks: gained, lost, kept, failed, with McNemar's exact test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from webgym_cli.records.statistics import mcnemar
from webgym_cli.store.index.query import Index

# A case of several scored attempts counts as solved from this share of successes on.
SOLVED_SHARE = 0.5

_CASES = """
SELECT task_key, {seed} AS seed, min(task) AS task, min(site) AS site, arg_max(id, (started_at, id)) AS id,
    avg(success::INTEGER) AS rate, avg(steps) AS steps
FROM trajectories WHERE {where} GROUP BY ALL ORDER BY task_key, seed
"""


class Change(StrEnum):
    """How a pair changed from the first side to the second."""

    GAINED = "gained"
    """Solved by the second side alone."""
    LOST = "lost"
    """Solved by the first side alone."""
    KEPT = "kept"
    """Solved by both."""
    FAILED = "failed"
    """Solved by neither."""


@dataclass(frozen=True, slots=True)
class PairedCase:
    """What one side did on one task, or on one task and seed."""

    task_key: str
    seed: int | None
    """None where cases are whole tasks."""
    task: str
    """The task's id."""
    site: str
    id: str
    """The newest trajectory's."""
    rate: float | None
    """Share of successes among the scored attempts; None without any."""
    steps: float
    """Mean over the attempts."""

    @property
    def solved(self) -> bool:
        """Whether it counts as solved."""
        return self.rate is not None and self.rate >= SOLVED_SHARE


Pair = tuple[PairedCase, PairedCase]


def read_cases(index: Index, where: str, values: Sequence[Any], *, by_seed: bool = True) -> Iterator[PairedCase]:
    """Yield the cases among the trajectories for which a condition holds, by task key and seed. Raises `StoreError`.

    The same task with the same seed is the same case in every run; not `by_seed`: the same task is.
    """
    sql = _CASES.format(seed="seed" if by_seed else "NULL::BIGINT", where=where)
    return (PairedCase(**row) for row in index.rows(sql, values))


def join_cases(
    first: Iterable[PairedCase], second: Iterable[PairedCase]
) -> Iterator[tuple[PairedCase | None, PairedCase | None]]:
    """Yield each case of either side with that of the other, or None; those of the first side come first."""
    others = {(case.task_key, case.seed): case for case in second}
    for case in first:
        yield case, others.pop((case.task_key, case.seed), None)
    for other in others.values():
        yield None, other


def find_change(pair: Pair) -> Change:
    """Return how a pair changed."""
    before, after = (case.solved for case in pair)
    if after:
        return Change.KEPT if before else Change.GAINED
    return Change.LOST if before else Change.FAILED


def count_changes(pairs: Iterable[Pair]) -> dict[Change, int]:
    """Return how many pairs changed in which way; zeroes included."""
    counts = Counter(map(find_change, pairs))
    return {change: counts[change] for change in Change}


def compute_p_value(counts: dict[Change, int]) -> float:
    """Return the p-value of McNemar's exact test on what was gained and lost."""
    return mcnemar(counts[Change.GAINED], counts[Change.LOST])
