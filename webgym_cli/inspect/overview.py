"""What is in the buffer: counts, success, failures, ages, by iteration, task, site and more. Counted by the index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from webgym_cli.records.statistics import wilson
from webgym_cli.store.checkpoints import version
from webgym_cli.store.index.means import read_means
from webgym_cli.store.index.pass_at_k import compute_pass_rates
from webgym_cli.store.index.query import Index
from webgym_cli.store.index.selection import TrajectoryQuery
from webgym_cli.store.run import RunDir


@dataclass(frozen=True, slots=True)
class Grouping:
    """One way to put trajectories into groups; each field is SQL."""

    key: str
    """A group's name."""
    first: str = "count DESC, key"
    """Which groups come first when only some are wanted."""
    order: str = "count DESC, key, iteration"
    """In which order the wanted ones are shown."""


TOTAL = Grouping("'all'")
# The tables of the overview, by their names in its JSON.
GROUPINGS = {
    "by_iteration": Grouping("split || ' ' || iteration", "newest DESC, key DESC", "split = 'test', iteration, key"),
    "by_task": Grouping("task"),
    "by_difficulty": Grouping("band"),
    "by_site": Grouping("site"),
    "by_environment": Grouping("environment"),
    "by_policy": Grouping("policy"),
}

# A row for each group, iteration and kind of failure: few, whatever the buffer's size.
_CELLS = """
WITH cells AS (
    SELECT {key} AS key, split, iteration, failure, count(*) AS trajectories, count(success) AS scored,
           count(*) FILTER (WHERE success) AS successes, sum(steps)::BIGINT AS steps
    FROM trajectories WHERE {where} GROUP BY ALL
), groups AS (SELECT key, sum(trajectories) AS count, max(iteration) AS newest FROM cells GROUP BY key
), wanted AS (SELECT key, count FROM groups ORDER BY {first} LIMIT ?)
SELECT cells.*, (SELECT count(*) FROM groups) AS groups FROM cells JOIN wanted USING (key) ORDER BY {order}
"""


@dataclass(slots=True)
class OverviewGroup:
    """The tallies of some trajectories."""

    trajectories: int = 0
    scored: int = 0
    successes: int = 0
    steps: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    iterations: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Scored and successful trajectories of each iteration."""

    def take(self, cell: dict[str, Any]) -> None:
        """Add a row of tallies."""
        self.trajectories += cell["trajectories"]
        self.scored += cell["scored"]
        self.successes += cell["successes"]
        self.steps += cell["steps"]
        if cell["failure"]:
            self.failures[cell["failure"]] += cell["trajectories"]
        scored, successes = self.iterations.get(cell["iteration"], (0, 0))
        self.iterations[cell["iteration"]] = (scored + cell["scored"], successes + cell["successes"])

    def to_json(self) -> dict[str, Any]:
        """Return the tallies with the success rate, its 95 % interval and the rate of each iteration."""
        low, high = wilson(self.successes, self.scored)
        return {
            "trajectories": self.trajectories,
            "scored": self.scored,
            "successes": self.successes,
            "success_rate": round(self.successes / self.scored, 4) if self.scored else None,
            "interval": [round(low, 4), round(high, 4)] if self.scored else None,
            "mean_steps": round(self.steps / self.trajectories, 2) if self.trajectories else None,
            "failures": dict(sorted(self.failures.items())),
            "success_by_iteration": {
                str(iteration): round(successes / scored, 4) if scored else None
                for iteration, (scored, successes) in sorted(self.iterations.items())
            },
        }


def build_overview(run: RunDir, index: Index, query: TrajectoryQuery, top: int | None = None) -> dict[str, Any]:
    """Return what the buffer holds of the trajectories that are asked for, as one JSON object.

    `top`: at most so many groups a table, the largest (of iterations the newest); None: all. `groups` tells how many
    there are. Raises `StoreError`.
    """
    total, _ = _groups(index, query, TOTAL, None)
    tables = {name: _groups(index, query, grouping, top) for name, grouping in GROUPINGS.items()}
    return {
        "run": str(run.root),
        "policy_version": version(run),
        **total.get("all", OverviewGroup()).to_json(),
        **{name: {key: group.to_json() for key, group in by_key.items()} for name, (by_key, _) in tables.items()},
        "groups": {name: count for name, (_, count) in tables.items()},
        "means": _means(index, query),
        "pass_at_k": compute_pass_rates(index, query),
        **_ages(index, query),
        "damaged_lines": _damage(run, index, query),
    }


def list_ids(index: Index, query: TrajectoryQuery) -> Iterator[str]:
    """Yield the ids of the trajectories that are asked for, in the order of writing. Raises `StoreError`."""
    where, values = query.where()
    order = "split = 'test', iteration, file, start"
    for row in index.rows(f"SELECT id FROM trajectories WHERE {where} ORDER BY {order}", values):
        yield row["id"]


def _groups(
    index: Index, query: TrajectoryQuery, by: Grouping, top: int | None
) -> tuple[dict[str, OverviewGroup], int]:
    """Return the wanted groups in order, and the number of all."""
    where, values = query.where()
    groups: dict[str, OverviewGroup] = {}
    count = 0
    for cell in index.rows(_CELLS.format(key=by.key, where=where, first=by.first, order=by.order), [*values, top]):
        groups.setdefault(cell["key"], OverviewGroup()).take(cell)
        count = cell["groups"]
    return groups, count


def _means(index: Index, query: TrajectoryQuery) -> dict[str, dict[str, float]]:
    """Return the means of rewards, extras, steps and calls by split and iteration."""
    where, values = query.where()
    means: dict[str, dict[str, float]] = {}
    for row in read_means(index, "split", where, values):
        means.setdefault(f"{row['key']} {row['iteration']}", {})[row["name"]] = row["mean"]
    return means


def _ages(index: Index, query: TrajectoryQuery) -> dict[str, Any]:
    where, values = query.where()
    moments = "epoch_ms(min(started_at)) AS oldest, epoch_ms(max(started_at)) AS newest"
    row = index.one(f"SELECT {moments} FROM trajectories WHERE {where}", values)
    if row["oldest"] is None:
        return {"oldest": None, "newest": None, "age_hours": None}
    times = [datetime.fromtimestamp(row[name] / 1000, UTC) for name in ("oldest", "newest")]
    hours = [round((datetime.now(UTC) - time).total_seconds() / 3600, 2) for time in times]
    oldest, newest = (time.isoformat(timespec="milliseconds") for time in times)
    return {"oldest": oldest, "newest": newest, "age_hours": hours}


def _damage(run: RunDir, index: Index, query: TrajectoryQuery) -> list[str]:
    """Return the lines that can't be read of the split and iteration that are asked for."""
    where, values = TrajectoryQuery(split=query.split, iteration=query.iteration).where()
    rows = index.rows(f"SELECT file, start, reason FROM damage WHERE {where} ORDER BY file, start", values)
    return [f"{run.root / row['file']}: byte {row['start']}: {row['reason']}" for row in rows]
