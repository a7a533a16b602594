"""Two iterations side by side, on the tasks that both have: what was gained, what was lost, and whether it tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from webgym_cli.errors import UsageError
from webgym_cli.records.statistics import mcnemar
from webgym_cli.records.task import Split
from webgym_cli.store.index.query import Index
from webgym_cli.store.run import RunDir

SOLVED = 0.5
"""A case of several scored attempts is solved when at least this share of them succeeded."""
KINDS = ("gained", "lost", "kept", "failed")
"""A case: solved only by the second side, only by the first, by both, by neither."""

_CASES = """
SELECT task_key, {seed} AS seed, min(task) AS task, min(site) AS site, arg_max(id, (started_at, id)) AS id,
       count(success) AS scored, avg(success::INTEGER) AS rate, avg(steps) AS steps
FROM trajectories WHERE split = ? AND iteration = ? GROUP BY ALL ORDER BY task, task_key, seed
"""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two that are compared."""

    run: RunDir
    index: Index
    """The run's."""
    iteration: int


@dataclass(frozen=True, slots=True)
class Case:
    """What one side did on one task, or on one task and seed."""

    task: str
    seed: int | None
    site: str
    id: str
    """The newest trajectory's."""
    rate: float | None
    """Share of successes among the scored attempts; None without any."""
    steps: float
    """Mean over the attempts."""

    @property
    def solved(self) -> bool:
        """Whether it counts as solved; only where there is a rate."""
        return self.rate is not None and self.rate >= SOLVED


CaseKey = tuple[str, int | None]
"""A task's key and the seed; None where seeds differ."""
Pair = tuple[Case, Case]


def compare(first: Side, second: Side, split: Split) -> dict[str, Any]:
    """Compare two sides on what both have, as one JSON object.

    The unit is the episode (same task, same seed) where the sides share any: test episodes are the same in every
    iteration. Else it is the task. Raises `UsageError` where a side has no trajectories, `StoreError`.
    """
    for side in (first, second):
        _require(side, split)
    sides = [_cases(side, split, by_seed=True) for side in (first, second)]
    if by_seed := bool(sides[0].keys() & sides[1].keys()):
        unit = "episode"
    else:
        unit = "task"
        sides = [_cases(side, split, by_seed=False) for side in (first, second)]
    shared = [(case, sides[1][key]) for key, case in sides[0].items() if key in sides[1]]
    pairs = [pair for pair in shared if all(case.rate is not None for case in pair)]
    kinds: dict[str, list[Pair]] = {kind: [] for kind in KINDS}
    for pair in pairs:
        kinds[_kind(pair)].append(pair)
    return {
        "split": split.value,
        "unit": unit,
        "pairs": len(pairs),
        "unscored": len(shared) - len(pairs),
        "first": _side_json(first, len(sides[0]) - len(shared), [pair[0] for pair in pairs]),
        "second": _side_json(second, len(sides[1]) - len(shared), [pair[1] for pair in pairs]),
        "counts": {kind: len(found) for kind, found in kinds.items()},
        "p_value": float(f"{mcnemar(len(kinds['gained']), len(kinds['lost'])):.4g}"),
        "by_task": _by_task(pairs),
        **{kind: [_pair_json(pair, by_seed) for pair in found] for kind, found in kinds.items()},
    }


def _require(side: Side, split: Split) -> None:
    there = list(side.index.rows("SELECT DISTINCT split, iteration FROM trajectories ORDER BY ALL"))
    if any((row["split"], row["iteration"]) == (split.value, side.iteration) for row in there):
        return
    names = ", ".join(f"{row['split']} {row['iteration']}" for row in there) or "nothing"
    raise UsageError(
        f"{side.run.root}: no {split} trajectories of iteration {side.iteration}; there is {names}",
        hint=f"webgym inspect-buffer {side.run.root}",
    )


def _cases(side: Side, split: Split, *, by_seed: bool) -> dict[CaseKey, Case]:
    sql = _CASES.format(seed="seed" if by_seed else "NULL::BIGINT")
    return {
        (row["task_key"], row["seed"]): Case(*(row[name] for name in ("task", "seed", "site", "id", "rate", "steps")))
        for row in side.index.rows(sql, [split.value, side.iteration])
    }


def _kind(pair: Pair) -> str:
    before, after = (case.solved for case in pair)
    return ("kept" if before else "gained") if after else ("lost" if before else "failed")


def _side_json(side: Side, alone: int, cases: Sequence[Case]) -> dict[str, Any]:
    return {
        "run": str(side.run.root),
        "iteration": side.iteration,
        "only_here": alone,
        "success_rate": _mean(case.rate for case in cases if case.rate is not None),
        "mean_steps": _mean(case.steps for case in cases),
    }


def _mean(values: Iterator[float]) -> float | None:
    listed = list(values)
    return round(sum(listed) / len(listed), 4) if listed else None


def _by_task(pairs: Sequence[Pair]) -> dict[str, dict[str, int]]:
    """Return the counts of each task id: those that changed most first."""
    found: dict[str, dict[str, int]] = {}
    for pair in pairs:
        counts = found.setdefault(pair[0].task, {"pairs": 0, **dict.fromkeys(KINDS, 0)})
        counts["pairs"] += 1
        counts[_kind(pair)] += 1
    order = sorted(found, key=lambda task: (-abs(found[task]["gained"] - found[task]["lost"]), task))
    return {task: found[task] for task in order}


def _pair_json(pair: Pair, by_seed: bool) -> dict[str, Any]:
    before, after = pair
    seed = {"seed": before.seed} if by_seed else {}
    return {"task": before.task, **seed, "site": before.site, "first": before.id, "second": after.id}
