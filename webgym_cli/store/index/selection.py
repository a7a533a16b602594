"""Filters of trajectories, as an SQL condition over the index's view `trajectories`, and the rates of the selected.

pass@k is the probability that one of k attempts at a task succeeds, averaged over tasks. Attempts at a test task have
one seed: another seed of it is another case, as in an evaluation's record.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Any

from webgym_cli.records.series import DEMONSTRATIONS, EXPERT
from webgym_cli.records.statistics import mean_pass_at_k
from webgym_cli.records.task import DifficultyBand, Split
from webgym_cli.store.index.query import Index

# Matches every kind of failure.
ANY = "any"
# Minimum share of tasks with at least k scored attempts; below it pass@k would describe other tasks.
ENOUGH = 0.5
# SQL expression: the split of a trajectory of the run, or the series of one of another server. An expert's episodes are
# apart (`test of oracle`) beside those of the policy: they counted as its successes on the same tasks.
SPLIT_OR_SERVER = f"""CASE WHEN series <> '{DEMONSTRATIONS}' THEN series
    WHEN (run, split, iteration) IN (SELECT (run, split, iteration) FROM stored WHERE series = split)
    THEN split || ' of {EXPERT}' ELSE split END"""
_TASKS = f"""
WITH tasks AS (
    SELECT {SPLIT_OR_SERVER} AS split, iteration, task_key, count(success) AS attempts,
        count(*) FILTER (WHERE success) AS successes
    FROM trajectories WHERE {{where}} GROUP BY 1, 2, 3, CASE WHEN trajectories.split = 'test' THEN seed END
)
SELECT split, iteration, attempts, successes, count(*) AS tasks FROM tasks WHERE attempts > 0
GROUP BY split, iteration, attempts, successes ORDER BY split = 'test', iteration, attempts, successes
"""
_MEANS = """
WITH scored AS (SELECT *, {key} AS key FROM trajectories WHERE success IS NOT NULL AND ({where})),
named AS (
    SELECT key, iteration, 'mean_reward' AS name, reward AS value FROM scored
    UNION ALL SELECT key, iteration, 'mean_steps', steps FROM scored
    UNION ALL SELECT key, iteration, 'reward_extra/' || pair.key, pair.value
        FROM (SELECT key, iteration, unnest(map_entries(reward_extra)) AS pair FROM scored)
    UNION ALL SELECT key, iteration, 'tool_calls/' || pair.key, pair.value
        FROM (SELECT key, iteration, unnest(map_entries(tool_calls)) AS pair FROM scored)
), counted AS (SELECT key, iteration, count(*) AS scored FROM scored GROUP BY ALL)
SELECT key, iteration, name,
    CASE WHEN name LIKE 'tool_calls/%' THEN any_value(scored) ELSE count(*) END AS trajectories,
    round(sum(value) / trajectories, 4) AS mean
FROM named JOIN counted USING (key, iteration) GROUP BY key, iteration, name ORDER BY key, iteration, name
"""


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


def read_means(index: Index, key: str, where: str = "true", parameters: Sequence[Any] = ()) -> Iterator[dict[str, Any]]:
    """Yield the `mean` of each `name` by `key` (an SQL expression) and iteration, over scored `trajectories`.

    Names are `mean_reward`, `mean_steps`, `reward_extra/NAME` and `tool_calls/NAME`. Tool calls that a trajectory did
    not make count as 0; missing reward extras are not counted.
    """
    return index.rows(_MEANS.format(key=key, where=where), parameters)
