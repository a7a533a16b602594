"""pass@k: the probability that one of k attempts at a task succeeds, averaged over tasks, by split and iteration.

Attempts at a test task have one seed: another seed of it is another case, as in an evaluation's record.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import count, takewhile
from typing import Any

from webgym_cli.records.statistics import mean_pass_at_k
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


def compute_pass_rates(index: Index, query: TrajectoryQuery) -> dict[str, dict[str, Any]]:
    """Return the number of `tasks` and, by `k`, pass@k with its number of tasks, for each `<split> <iteration>`.

    Tasks are identified by content, of the test split with their seed. k is 1, 2, 4, 8, ... as long as enough tasks
    have k scored attempts. Raises `StoreError`.
    """
    where, values = query.where()
    tallies: defaultdict[str, Counter[tuple[int, int]]] = defaultdict(Counter)
    for row in index.rows(_TASKS.format(where=where), values):
        tallies[f"{row['split']} {row['iteration']}"][row["attempts"], row["successes"]] = row["tasks"]
    return {key: _compute_rates(tally) for key, tally in tallies.items()}


def _compute_rates(tally: Counter[tuple[int, int]]) -> dict[str, Any]:
    tasks = tally.total()
    rates = ((str(2**power), mean_pass_at_k(tally, 2**power)) for power in count())
    return {"tasks": tasks, "k": dict(takewhile(lambda rate: rate[1]["tasks"] >= ENOUGH * tasks, rates))}
