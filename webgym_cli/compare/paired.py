"""Paired comparison on the same tasks (gained, lost, kept, failed) with McNemar's exact test; two policy versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from webgym_cli.errors import UsageError
from webgym_cli.records.statistics import mcnemar, mean
from webgym_cli.records.task import Split
from webgym_cli.store.index.query import Index
from webgym_cli.store.index.selection import SPLIT_OR_SERVER
from webgym_cli.store.run import RunDir
from webgym_cli.util.optional import group_by, when

# Minimum share of successes for a case with several scored attempts to count as solved.
SOLVED_SHARE = 0.5

_CASES = """
SELECT task_key, {seed} AS seed, min(task) AS task, min(site) AS site, arg_max(id, (started_at, id)) AS id,
    avg(success::INTEGER) AS rate, avg(steps) FILTER (failure IS NULL) AS steps
FROM trajectories WHERE {series} = ? AND iteration = ? GROUP BY ALL ORDER BY task_key, seed
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


def count_changes(pairs: Iterable[Pair]) -> dict[str, int]:
    """Return the number of pairs per change, zeros included."""
    counts = Counter(map(find_change, pairs))
    return {change.value: counts[change] for change in Change}


def compute_p_value(counts: dict[str, int]) -> float:
    """Return the p-value of McNemar's exact test on gained and lost pairs, with four significant digits."""
    return float(f"{mcnemar(counts[Change.GAINED], counts[Change.LOST]):.4g}")


@dataclass(frozen=True, slots=True)
class ComparedVersion:
    """One side of the comparison."""

    run: RunDir
    index: Index
    iteration: int


def compare_versions(first: ComparedVersion, second: ComparedVersion, split: Split) -> dict[str, Any]:
    """Compare two versions on their common cases and return one JSON object.

    The unit is the episode (same task and seed) if the sides share any: test episodes are the same in every iteration.
    Otherwise it is the task. Raises `UsageError` if a side has no trajectories, `StoreError`.
    """
    series = [_find_series(side, split) for side in (first, second)]
    sides = [(first, series[0]), (second, series[1])]
    unit, joined = "episode", _join(sides, by_seed=True)
    # Training episodes get new seeds in each iteration, so without common seeds tasks are compared.
    if not any(before and after for before, after in joined):
        unit, joined = "task", _join(sides, by_seed=False)
    shared = sorted(
        ((before, after) for before, after in joined if before and after),
        key=lambda pair: (pair[0].task, pair[0].task_key, pair[0].seed),
    )
    pairs = [pair for pair in shared if all(case.rate is not None for case in pair)]
    counts = count_changes(pairs)
    alone = [sum(other is None for _, other in joined), sum(other is None for other, _ in joined)]
    return {
        "split": split.value,
        "unit": unit,
        "pairs": len(pairs),
        "unscored": len(shared) - len(pairs),
        "first": _side_json(first, alone[0], [before for before, _ in pairs]),
        "second": _side_json(second, alone[1], [after for _, after in pairs]),
        "counts": counts,
        "p_value": compute_p_value(counts),
        "by_task": _count_by_task(pairs),
        **{change.value: [_pair_json(pair) for pair in pairs if find_change(pair) is change] for change in Change},
    }


def find_versions(index: Index, split: Split) -> list[int]:
    """Return the versions with trajectories of a split, ascending. Raises `StoreError`."""
    sql = f"SELECT DISTINCT iteration FROM trajectories WHERE {SPLIT_OR_SERVER} = ? ORDER BY iteration"
    return [row["iteration"] for row in index.rows(sql, [split.value])]


def _find_series(side: ComparedVersion, split: Split) -> str:
    """Return the series to compare: the run's own, or that of another server if there is no own one."""
    sql = f"SELECT DISTINCT split, {SPLIT_OR_SERVER} AS series, iteration FROM trajectories ORDER BY ALL"
    there = list(side.index.rows(sql))
    for row in there:  # the split's own name comes first
        if (row["split"], row["iteration"]) == (split.value, side.iteration):
            return str(row["series"])
    names = ", ".join(f"{row['series']} {row['iteration']}" for row in there) or "nothing"
    raise UsageError(
        f"{side.run.root}: no {split} trajectories of iteration {side.iteration}; there is {names}",
        hint=f"webgym inspect-buffer {side.run.root}",
    )


def _join(
    sides: Sequence[tuple[ComparedVersion, str]], *, by_seed: bool
) -> list[tuple[PairedCase | None, PairedCase | None]]:
    """Return the cases of both sides: equal task and seed make the same in every run; without `by_seed` equal tasks."""
    sql = _CASES.format(seed="seed" if by_seed else "NULL::BIGINT", series=SPLIT_OR_SERVER)
    rows = (side.index.rows(sql, [series, side.iteration]) for side, series in sides)
    return list(join_cases(*([PairedCase(**row) for row in of_side] for of_side in rows)))


def _count_by_task(pairs: Iterable[Pair]) -> dict[str, dict[str, int]]:
    """Return the number of `pairs` and of each change by task id, those with the largest changes first."""
    groups = group_by(pairs, lambda pair: pair[0].task)
    counts = {task: {"pairs": len(members), **count_changes(members)} for task, members in groups.items()}

    def order(task: str) -> tuple[int, int, str]:
        gained, lost = counts[task][Change.GAINED], counts[task][Change.LOST]
        return -abs(gained - lost), -gained - lost, task

    return {task: counts[task] for task in sorted(counts, key=order)}


def _side_json(side: ComparedVersion, alone: int, cases: Sequence[PairedCase]) -> dict[str, Any]:
    return {
        "run": str(side.run.root),
        "iteration": side.iteration,
        "only_here": alone,
        "success_rate": mean(case.rate for case in cases if case.rate is not None),
        "mean_steps": mean(case.steps for case in cases if case.steps is not None),
    }


def _pair_json(pair: Pair) -> dict[str, Any]:
    before, after = pair
    seed = when(before.seed is not None, {"seed": before.seed})
    return {"task": before.task, **seed, "site": before.site, "first": before.id, "second": after.id}
