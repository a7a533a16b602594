"""Overview of the buffer from the index: counts, success rates, failures and ages by iteration, task, site and more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from webgym_cli.records.statistics import known_interval, ratio
from webgym_cli.store.checkpoints import version
from webgym_cli.store.index.means import read_means
from webgym_cli.store.index.pass_at_k import compute_pass_rates
from webgym_cli.store.index.query import SPLIT_OR_SERVER, Index
from webgym_cli.store.index.selection import TrajectoryQuery
from webgym_cli.store.run import RunDir
from webgym_cli.util.optional import map_known


@dataclass(frozen=True, slots=True)
class Grouping:
    """One grouping of trajectories; each field is an SQL expression."""

    key: str
    """Name of a group."""
    first: str = "count DESC, key"
    """Order that selects the groups if only some are wanted."""
    order: str = "count DESC, key"
    """Order in which the selected groups are shown."""


TOTAL = Grouping("'all'")
# Tables of the overview by their names in its JSON.
GROUPINGS = {
    "by_iteration": Grouping(
        f"{SPLIT_OR_SERVER} || ' ' || iteration", "newest DESC, key DESC", "split = 'test', newest, key"
    ),
    "by_task": Grouping("task"),
    "by_difficulty": Grouping("band"),
    "by_site": Grouping("site"),
    "by_environment": Grouping("environment"),
    "by_policy": Grouping("policy"),
}

# One row per group with a few aggregate columns, whatever the buffer's size.
_GROUPS = """
SELECT * FROM (
    SELECT {key} AS key, count(*) AS count, count(success) AS scored, count(*) FILTER (success) AS successes,
        avg(steps) FILTER (failure IS NULL) AS mean_steps, avg(steps) FILTER (failure = 'cancelled') AS cut_steps,
        histogram(failure) AS failures,
        histogram(iteration) AS iterations,
        histogram(iteration) FILTER (success IS NOT NULL) AS scored_in,
        histogram(iteration) FILTER (success) AS successes_in,
        any_value(split) AS split, max(iteration) AS newest, count(*) OVER () AS groups
    FROM trajectories WHERE {where} GROUP BY 1 ORDER BY {first} LIMIT ?
) ORDER BY {order}
"""


def build_overview(run: RunDir, index: Index, query: TrajectoryQuery, top: int | None = None) -> dict[str, Any]:
    """Return the overview of the matching trajectories as one JSON object.

    `top`: maximum number of groups per table (the largest; for iterations the newest); None: all. `groups` is the total
    number. Raises `StoreError`.
    """
    total = _read_groups(index, query, TOTAL, None)
    tables = {name: _read_groups(index, query, grouping, top) for name, grouping in GROUPINGS.items()}
    return {
        "run": str(run.root),
        "policy_version": version(run),
        **_summarize(next(iter(total), Counter())),
        "cut_mean_steps": next((map_known(partial(round, ndigits=2), group["cut_steps"]) for group in total), None),
        **{name: {group["key"]: _summarize(group) for group in groups} for name, groups in tables.items()},
        "groups": {name: next((group["groups"] for group in groups), 0) for name, groups in tables.items()},
        "means": _means(index, query),
        "pass_at_k": compute_pass_rates(index, query),
        **_ages(index, query),
        "damaged_lines": _damage(run, index, query),
    }


def list_ids(index: Index, query: TrajectoryQuery) -> Iterator[str]:
    """Yield the ids of the matching trajectories in the order of writing. Raises `StoreError`."""
    where, values = query.where()
    order = "split = 'test', iteration, file, start"
    for row in index.rows(f"SELECT id FROM trajectories WHERE {where} ORDER BY {order}", values):
        yield row["id"]


def _read_groups(index: Index, query: TrajectoryQuery, by: Grouping, top: int | None) -> list[dict[str, Any]]:
    """Return the selected groups in order, each with the total number of groups."""
    where, values = query.where()
    sql = _GROUPS.format(key=by.key, where=where, first=by.first, order=by.order)
    return list(index.rows(sql, [*values, top]))


def _summarize(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the aggregates with the success rate, its 95 % interval and the rate of each iteration."""
    count, scored, successes = group["count"], group["scored"], group["successes"]
    scored_in, successes_in = (Counter(group[name] or {}) for name in ("scored_in", "successes_in"))
    return {
        "trajectories": count,
        "scored": scored,
        "successes": successes,
        "success_rate": ratio(successes, scored),
        "interval": known_interval(successes, scored),
        "mean_steps": round(mean, 2) if (mean := group.get("mean_steps")) is not None else None,
        "failures": dict(sorted((group["failures"] or {}).items())),
        "success_by_iteration": {
            str(number): ratio(successes_in[number], scored_in[number]) for number in sorted(group["iterations"] or ())
        },
    }


def _means(index: Index, query: TrajectoryQuery) -> dict[str, dict[str, float]]:
    """Return the means of rewards, extras, steps and calls by split and iteration."""
    where, values = query.where()
    means: dict[str, dict[str, float]] = {}
    for row in read_means(index, SPLIT_OR_SERVER, where, values):
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
    """Return the unreadable lines of the matching splits and iterations."""
    where, values = TrajectoryQuery(split=query.split, iteration=query.iteration).where()
    rows = index.rows(f"SELECT file, start, reason FROM damage WHERE {where} ORDER BY file, start", values)
    return [f"{run.root / row['file']}: byte {row['start']}: {row['reason']}" for row in rows]
