"""Comparison of two policy versions, of one run or of two, on the episodes that they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from webgym_cli.errors import UsageError
from webgym_cli.records.statistics import mean
from webgym_cli.records.task import Split
from webgym_cli.store.index.paired import (
    Change,
    Pair,
    PairedCase,
    compute_p_value,
    count_changes,
    count_changes_by_task,
    find_change,
    join_cases,
    read_cases,
)
from webgym_cli.store.index.query import SPLIT_OR_SERVER, Index
from webgym_cli.store.run import RunDir
from webgym_cli.util.optional import when


@dataclass(frozen=True, slots=True)
class ComparedVersion:
    """One side of the comparison."""

    run: RunDir
    index: Index
    """Index of its run."""
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
        "counts": {change.value: count for change, count in counts.items()},
        "p_value": compute_p_value(counts),
        "by_task": {
            task: {"pairs": sum(of.values()), **{change.value: count for change, count in of.items()}}
            for task, of in count_changes_by_task(pairs).items()
        },
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
    where = f"{SPLIT_OR_SERVER} = ? AND iteration = ?"
    cases = (read_cases(side.index, where, [series, side.iteration], by_seed=by_seed) for side, series in sides)
    return list(join_cases(*cases))


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
