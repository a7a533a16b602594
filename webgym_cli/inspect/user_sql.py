"""Users' SQL queries of the index: a single SELECT without write access."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, time
from decimal import Decimal
from math import isfinite
from typing import Any

import duckdb

from webgym_cli.errors import StoreError, UsageError
from webgym_cli.store.index.query import Index, format_duckdb_error
from webgym_cli.store.index.schema import TABLES
from webgym_cli.store.run import RunDir

# Views that can be queried.
VIEWS = ("trajectories", "stored", *(table for table in TABLES if table != "trajectories"))


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
    except StoreError as error:
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


_HINT = f"the tables: {', '.join(VIEWS)}; DESCRIBE one of them for its columns"


def _wrong(option: str, error: BaseException) -> UsageError:
    return UsageError(f"{option}: {format_duckdb_error(error)}", hint=_HINT)
