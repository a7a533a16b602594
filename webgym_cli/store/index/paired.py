"""Paired comparison of two iterations on the same tasks (gained, lost, kept, failed) with McNemar's exact test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from webgym_cli.records.statistics import mcnemar
from webgym_cli.store.index.query import Index

# Minimum share of successes for a case with several scored attempts to count as solved.
SOLVED_SHARE = 0.5

_CASES = """
SELECT task_key, {seed} AS seed, min(task) AS task, min(site) AS site, arg_max(id, (started_at, id)) AS id,
    avg(success::INTEGER) AS rate, avg(steps) FILTER (failure IS NULL) AS steps
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
    """Result of one side on one task, or on one task and seed."""

    task_key: str
    seed: int | None
    """None if cases are whole tasks."""
    task: str
    """The task's id."""
    site: str
    id: str
    """Id of the newest trajectory."""
    rate: float | None
    """Success rate of the scored attempts; None without any."""
    steps: float | None
    """Mean over the attempts that did not fail."""

    @property
    def solved(self) -> bool:
        """Whether the case counts as solved."""
        return self.rate is not None and self.rate >= SOLVED_SHARE


Pair = tuple[PairedCase, PairedCase]


def read_cases(index: Index, where: str, values: Sequence[Any], *, by_seed: bool = True) -> Iterator[PairedCase]:
    """Yield the cases of the trajectories that match a condition, by task key and seed. Raises `StoreError`.

    Equal task and seed make the same case in every run; without `by_seed`, equal tasks do.
    """
    sql = _CASES.format(seed="seed" if by_seed else "NULL::BIGINT", where=where)
    return (PairedCase(**row) for row in index.rows(sql, values))


def join_cases(
    first: Iterable[PairedCase], second: Iterable[PairedCase]
) -> Iterator[tuple[PairedCase | None, PairedCase | None]]:
    """Yield the cases of both sides in pairs, with None for a missing one; the first side's cases come first."""
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
    """Return the number of pairs per change, zeros included."""
    counts = Counter(map(find_change, pairs))
    return {change: counts[change] for change in Change}


def count_changes_by_task(pairs: Iterable[Pair]) -> dict[str, dict[Change, int]]:
    """Return the number of pairs per change by task id, those with the largest changes first."""
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(pair[0].task, []).append(pair)
    counts = {group: count_changes(members) for group, members in groups.items()}

    def order(group: str) -> tuple[int, int, str]:
        gained, lost = counts[group][Change.GAINED], counts[group][Change.LOST]
        return -abs(gained - lost), -gained - lost, group

    return {group: counts[group] for group in sorted(counts, key=order)}


def compute_p_value(counts: dict[Change, int]) -> float:
    """Return the p-value of McNemar's exact test on gained and lost pairs, with four significant digits."""
    return float(f"{mcnemar(counts[Change.GAINED], counts[Change.LOST]):.4g}")
