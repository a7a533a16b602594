"""pass@k: the probability that one of k attempts at a task succeeds, averaged over tasks, by split and iteration.

Attempts at a test task have one seed: another seed of it is another case, as in an evaluation's record.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import count, takewhile
from typing import TypedDict

from webgym_cli.records.statistics import pass_at_k
from webgym_cli.store.index.query import SPLIT_OR_SERVER, Index
from webgym_cli.store.index.selection import TrajectoryQuery

# Minimum share of tasks with at least k scored attempts; below it pass@k would describe other tasks.
ENOUGH = 0.5

_TASKS = f"""
WITH tasks AS (
    SELECT {SPLIT_OR_SERVER} AS split, iteration, task_key, count(success) AS attempts,
        count(*) FILTER (WHERE success) AS successes
    FROM trajectories WHERE {{where}} GROUP BY 1, 2, 3, CASE WHEN trajectories.split = 'test' THEN seed END
)
SELECT split, iteration, attempts, successes, count(*) AS tasks FROM tasks WHERE attempts > 0
GROUP BY split, iteration, attempts, successes ORDER BY split = 'test', iteration, attempts, successes
"""


class PassRate(TypedDict):
    """pass@k for one k."""

    rate: float
    tasks: int
    """Number of tasks with at least k scored attempts."""


class PassRates(TypedDict):
    """pass@k of one split and iteration."""

    tasks: int
    k: dict[str, PassRate]


# (scored attempts, successes, number of such tasks).
Tally = list[tuple[int, int, int]]


def compute_pass_rates(index: Index, query: TrajectoryQuery) -> dict[str, PassRates]:
    """Return the number of tasks and mean pass@k with its number of tasks, for each `<split> <iteration>`.

    Tasks are identified by content, of the test split with their seed. k is 1, 2, 4, 8, ... as long as enough tasks
    have k scored attempts. Raises `StoreError`.
    """
    where, values = query.where()
    tallies: dict[str, Tally] = defaultdict(list)
    for row in index.rows(_TASKS.format(where=where), values):
        tallies[f"{row['split']} {row['iteration']}"].append((row["attempts"], row["successes"], row["tasks"]))
    return {key: _rates(tally) for key, tally in tallies.items()}


def _rates(tally: Tally) -> PassRates:
    tasks = sum(number for _, _, number in tally)
    powers = takewhile(lambda k: _behind(tally, k) >= ENOUGH * tasks, (2**power for power in count()))
    return {"tasks": tasks, "k": {str(k): {"rate": _mean(tally, k), "tasks": _behind(tally, k)} for k in powers}}


def _behind(tally: Tally, k: int) -> int:
    return sum(number for attempts, _, number in tally if attempts >= k)


def _mean(tally: Tally, k: int) -> float:
    chances = (number * pass_at_k(attempts, successes, k) for attempts, successes, number in tally if attempts >= k)
    return round(sum(chances) / _behind(tally, k), 4)
