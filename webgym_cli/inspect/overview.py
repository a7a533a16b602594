"""Overview of the buffer from the index: counts, success rates, failures and ages by iteration, task, site and more.

Also the rows of a user's SQL query: a single SELECT without write access.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from math import isfinite
from typing import Any

import duckdb

from webgym_cli.errors import StoreError, UsageError
from webgym_cli.records.statistics import known_interval, ratio
from webgym_cli.store.checkpoints import version
from webgym_cli.store.index.query import Index, format_duckdb_error
from webgym_cli.store.index.schema import TABLES
from webgym_cli.store.index.selection import SPLIT_OR_SERVER, TrajectoryQuery, compute_pass_rates, read_means
from webgym_cli.store.run import RunDir
from webgym_cli.util.optional import map_known

# Tables of the overview by their names in its JSON: SQL expression of a group's name.
GROUPINGS = {
    "by_iteration": f"{SPLIT_OR_SERVER} || ' ' || iteration",
    "by_task": "task",
    "by_difficulty": "band",
    "by_site": "site",
    "by_environment": "environment",
    "by_policy": "policy",
}
# Order that selects the groups if only some are wanted, and the order in which these are shown.
_ORDER = ("count DESC, key", "count DESC, key")
_ORDERS = {"by_iteration": ("newest DESC, key DESC", "split = 'test', newest, key")}

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
# Views that can be queried.
VIEWS = ("trajectories", "stored", *(table for table in TABLES if table != "trajectories"))
_HINT = f"the tables: {', '.join(VIEWS)}; DESCRIBE one of them for its columns"


def build_overview(run: RunDir, index: Index, query: TrajectoryQuery, top: int | None = None) -> dict[str, Any]:
    """Return the overview of the matching trajectories as one JSON object.

    `top`: maximum number of groups per table (the largest; for iterations the newest); None: all. `groups` is the total
    number. Raises `StoreError`.
    """
    total = _read_groups(index, query, "'all'", _ORDER, None)
    tables = {name: _read_groups(index, query, key, _ORDERS.get(name, _ORDER), top) for name, key in GROUPINGS.items()}
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
        "damaged_lines": index.damaged_lines(*TrajectoryQuery(split=query.split, iteration=query.iteration).where()),
    }


def list_ids(index: Index, query: TrajectoryQuery) -> Iterator[str]:
    """Yield the ids of the matching trajectories in the order of writing. Raises `StoreError`."""
    where, values = query.where()
    order = "split = 'test', iteration, file, start"
    for row in index.rows(f"SELECT id FROM trajectories WHERE {where} ORDER BY {order}", values):
        yield row["id"]


def _read_groups(
    index: Index, query: TrajectoryQuery, key: str, orders: tuple[str, str], top: int | None
) -> list[dict[str, Any]]:
    """Return the selected groups in order, each with the total number of groups."""
    where, values = query.where()
    first, order = orders
    sql = _GROUPS.format(key=key, where=where, first=first, order=order)
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


def run_user_sql(run: RunDir, index: Index, sql: str) -> Iterator[dict[str, Any]]:
    """Yield a query's rows. Raises `UsageError` with DuckDB's message if it is invalid, `StoreError`."""
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise _wrong("--sql", error) from error
    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        raise UsageError("--sql takes one SELECT: the index is read, never written", hint=_HINT)
    with user_sql_errors(run, "--sql"):
        yield from index.rows(statements[0].query)


@contextmanager
def user_sql_errors(run: RunDir, option: str) -> Iterator[None]:
    """Convert errors in the block to `UsageError` about the user's SQL, unless the index's files are the cause."""
    try:
        yield
    except (StoreError, UsageError) as error:
        cause = error.__cause__
        out_of_memory = isinstance(cause, duckdb.OutOfMemoryException)
        if not isinstance(cause, duckdb.Error) or out_of_memory or str(run.index) in str(cause):
            raise
        raise _wrong(option, cause) from error


def to_plain_value(value: Any) -> Any:
    """Return a value as JSON: times in ISO 8601, unknown types as text."""
    if isinstance(value, dict):
        return {str(to_plain_value(key)): to_plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain_value(item) for item in value]
    if isinstance(value, date | time):  # datetime is a subclass of date
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float) and not isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else str(value)


def _wrong(option: str, error: BaseException) -> UsageError:
    return UsageError(f"{option}: {format_duckdb_error(error)}", hint=_HINT)
