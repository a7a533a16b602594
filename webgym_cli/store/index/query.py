"""SQL queries over the index with DuckDB."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webgym_cli.errors import StoreError, UsageError
from webgym_cli.records.events import EventSink
from webgym_cli.store.buffer import LineRef
from webgym_cli.store.run import RunDir
from webgym_cli.util.stopping import interruptible_by
from webgym_cli.util.temporary_folder import TemporaryFolder
from webgym_cli.util.text import number_repeats

if TYPE_CHECKING:  # DuckDB and Arrow take 100 MB, and a rollout has no use for them
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

# DuckDB's memory limit; it spills to a temporary folder.
_MEMORY = "192MB"
_ZONED = "TIMESTAMP WITH TIME ZONE"
# Rows per fetch.
_ROWS = 128

# SQL expression: the fields of a `LineRef`, from the columns of `trajectories`.
LINE_REF = """{
    'id': id, 'file': file, 'offset': start, 'length': size,
    'verdict_file': verdict_file, 'verdict_offset': verdict_start, 'verdict_length': verdict_size
}"""

# Trajectories with their effective judgement, as defined in `records.judgement`.
_TRAJECTORIES = """
CREATE VIEW trajectories AS
WITH newest AS (
    SELECT run, trajectory, split, iteration, source AS judged_by, success AS judged, failure AS judge_failure,
        failure_detail AS judge_detail, model AS judge_model, agreement, votes, judged_at,
        file AS verdict_file, start AS verdict_start, size AS verdict_size, probability,
        reward AS check_reward, reward_extra AS check_extra
    FROM judgements
    QUALIFY row_number() OVER (
        PARTITION BY run, trajectory, split, iteration, source
        ORDER BY coalesce(failure = 'judge_failed', FALSE), unavailable, judged_at DESC, file DESC, start DESC) = 1
), counting AS (
    SELECT * EXCLUDE probability, max(probability) OVER of_one AS orm_probability
    FROM newest WINDOW of_one AS (PARTITION BY run, trajectory, split, iteration)
    QUALIFY row_number() OVER (PARTITION BY run, trajectory, split, iteration ORDER BY
        CASE WHEN judged_by = 'check' THEN 0 WHEN judged_by = 'orm' THEN 2 WHEN judge_failure = 'judge_failed' THEN 3
        ELSE 1 END) = 1
), overlaid AS (
    SELECT stored.*, counting.* EXCLUDE (run, trajectory, split, iteration),
        counting.trajectory IS NOT NULL AND (judged_by = 'check' OR (NOT scored_by_environment
            AND (failure IS NULL OR failure = 'judge_failed')
            AND (judged_by = 'judge' OR reward IS NULL))) AS by_judge
    FROM stored LEFT JOIN counting ON counting.run = stored.run AND counting.trajectory = stored.id
        AND counting.split = stored.split AND counting.iteration = stored.iteration
), decided AS (
    SELECT * EXCLUDE (judge_failure, judge_detail, by_judge, check_reward, check_extra) REPLACE (
        CASE WHEN by_judge THEN coalesce(check_reward, judged::DOUBLE) ELSE reward END AS reward,
        CASE WHEN by_judge AND judged_by <> 'check' THEN 1 ELSE success_threshold END AS success_threshold,
        CASE WHEN judged_by = 'check' THEN check_extra ELSE reward_extra END AS reward_extra,
        coalesce(check_reward, environment_reward) AS environment_reward,
        scored_by_environment OR coalesce(judged_by = 'check', FALSE) AS scored_by_environment,
        CASE WHEN by_judge THEN (CASE WHEN judged IS NULL THEN judge_failure END) ELSE failure END AS failure,
        CASE WHEN by_judge THEN (CASE WHEN judged IS NULL THEN judge_detail ELSE '' END)
            ELSE failure_detail END AS failure_detail)
    FROM overlaid
)
SELECT *, CASE WHEN failure IS NULL THEN reward >= success_threshold END AS success FROM decided
"""


class Index:
    """Tables of an index, from `open_index`: views `trajectories`, `stored`, `steps`, ..., each with a column `run`."""

    def __init__(self, run: RunDir, connection: DuckDBPyConnection) -> None:
        self._run = run
        self._connection = connection

    def rows(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Iterator[dict[str, Any]]:
        """Yield a query's rows, in batches. Raises `UsageError` if a condition fails at a row, `StoreError`."""
        import duckdb

        cursor = self._connection.cursor()
        given = parameters if isinstance(parameters, Mapping) else list(parameters)
        try:
            with interruptible_by(cursor.interrupt):
                result = cursor.execute(sql, given)
                names = number_repeats(column[0] for column in result.description or ())
                types = [str(column[1]) for column in result.description or ()]
                if any(_ZONED in kind for kind in types):
                    result = cursor.execute(_cast_zoned(sql, types), given)
                while batch := result.fetchmany(_ROWS):
                    yield from (dict(zip(names, values, strict=True)) for values in batch)
        except duckdb.DataError as error:
            words = f"the condition on trajectories fails at a row: {format_duckdb_error(error)}"
            raise UsageError(words, hint="TRY_CAST(COLUMN AS TYPE) is NULL there") from error
        except duckdb.Error as error:
            raise StoreError(
                f"{self._run.index}: {format_duckdb_error(error)}",
                hint=f"webgym inspect-buffer {self._run.root} --reindex",
            ) from error

    def table(self, sql: str) -> pa.Table:
        """Return all rows of a query as an Arrow table. Raises DuckDB's errors."""
        cursor = self._connection.cursor()
        with interruptible_by(cursor.interrupt):
            return cursor.sql(sql).to_arrow_table()

    def one(self, sql: str, parameters: Sequence[Any] = ()) -> dict[str, Any]:
        """Return the single row of a query. Raises `StoreError`."""
        (row,) = self.rows(sql, parameters)
        return row

    def places(
        self, where: str = "true", parameters: Sequence[Any] = (), order: str = "iteration, split, file, start"
    ) -> Iterator[LineRef]:
        """Yield the line locations of the trajectories that match a condition."""
        sql = f"SELECT {LINE_REF} AS place FROM trajectories WHERE {where} ORDER BY {order}"
        return (LineRef(**row["place"]) for row in self.rows(sql, parameters))

    def damaged_lines(self, where: str, parameters: Sequence[Any] = ()) -> list[str]:
        """Return the unreadable lines of the splits and iterations that match a condition."""
        rows = self.rows(f"SELECT file, start, reason FROM damage WHERE {where} ORDER BY file, start", parameters)
        root = self._run.root
        return [f"{root / row['file']}: the line at byte {row['start']} is damaged: {row['reason']}" for row in rows]

    def check_where(self, expression: str) -> str:
        """Return a user's SQL condition in parentheses. Raises `UsageError` with DuckDB's message if it is invalid."""
        import duckdb

        condition = f"({expression}\n)"
        try:
            (statement,) = duckdb.extract_statements(f"SELECT id FROM trajectories WHERE {condition}")
            if not expression.strip() or statement.type != duckdb.StatementType.SELECT:
                raise ValueError("it is no condition")
            # Explained, not executed: a cast may fail only at rows that the other filters leave out.
            self._connection.cursor().execute(f"EXPLAIN {statement.query}")
        except (duckdb.Error, ValueError) as error:
            raise UsageError(
                f"{expression!r} is no condition on trajectories: {format_duckdb_error(error)}",
                hint="the columns: " + ", ".join(row["column_name"] for row in self.rows("DESCRIBE trajectories")),
            ) from error
        return condition


@contextmanager
def open_index(
    run: RunDir, *more: RunDir, progress: EventSink | None = None, as_of: Mapping[str, int] | None = None
) -> Iterator[Index]:
    """Update the index and yield it. Its memory does not grow with the buffer. Raises `StoreError`.

    `more`: runs whose tables follow in the same views. In a run that can't be written, a colleague's or on a full disk,
    the update goes to a temporary folder. `as_of`: visible size of each file of the only run, by path relative to it;
    None: everything.
    """
    import duckdb

    from webgym_cli.store.index.schema import TABLES

    with ExitStack() as stack:
        runs = [update_or_copy(one, progress, stack) for one in (run, *more)]
        connection = duckdb.connect(
            config={
                "memory_limit": _MEMORY,
                "threads": min(4, len(os.sched_getaffinity(0))),
                "temp_directory": str(stack.enter_context(TemporaryFolder("index"))),
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "preserve_insertion_order": False,
            }
        )
        try:
            fragments = {one: _files(one) for one in runs}
            for table in TABLES:
                _view(connection, table, {one: files[table] for one, files in fragments.items()})
            if as_of is not None:
                _restrict(connection, as_of)
            connection.execute(_TRAJECTORIES)
            # Else `started_at > now() - INTERVAL 1 HOUR` chooses other episodes in another time zone.
            connection.execute("SET GLOBAL TimeZone = 'UTC'")
            folders = {(one, file.parent) for one, of in fragments.items() for files in of.values() for file in files}
            # A temporary index links to the run's own, and DuckDB checks the resolved path.
            own = {RunDir(one.root).index.resolve() / folder.relative_to(one.index) for one, folder in folders}
            _lock(connection, own | {folder for _, folder in folders})
            yield Index(runs[0], connection)
        finally:
            connection.close()


@contextmanager
def temporary_index(run: RunDir) -> Iterator[RunDir]:
    """Yield the run with an index in a temporary folder, for readers who can't or should not write into the run.

    It starts with links to the run's own fragments.
    """
    with TemporaryFolder("index") as folder:
        for fragment in run.index.rglob("*.parquet"):
            link = folder / fragment.relative_to(run.index)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(fragment)
        yield replace(run, index_folder=folder)


def update_or_copy(run: RunDir, progress: EventSink | None, stack: ExitStack) -> RunDir:
    """Update a run's index; return the run, or the run with a temporary index. Raises `StoreError`."""
    from webgym_cli.store.index.build import update

    try:
        update(run, progress)
    except StoreError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        if progress is not None:
            progress({"event": "index", "message": f"{error}: a temporary index is read"})
        run = stack.enter_context(temporary_index(run))
        update(run, progress)
    return run


def _restrict(connection: DuckDBPyConnection, as_of: Mapping[str, int]) -> None:
    """Hide the trajectories and judgements whose lines start after the given file sizes."""
    ends = "SELECT unnest(?::VARCHAR[]) AS file, unnest(?::BIGINT[]) AS bytes"
    connection.execute(f"CREATE TABLE as_of AS {ends}", [list(as_of), list(as_of.values())])
    for view in ("stored", "judgements"):
        connection.execute(f"ALTER VIEW {view} RENAME TO all_{view}")
        seen = f"all_{view}.file = as_of.file AND start < bytes"
        connection.execute(f"CREATE VIEW {view} AS SELECT all_{view}.* FROM all_{view} JOIN as_of ON {seen}")


def _lock(connection: DuckDBPyConnection, folders: Collection[Path]) -> None:
    """Restrict a user's SQL to the index's files: no other files, no Python variables, no change of these settings."""
    listing = ", ".join(_quote(f"{name}/") for folder in folders for name in (str(folder), escape(str(folder))))
    connection.execute(f"SET allowed_directories = [{listing}]")
    connection.execute("SET python_enable_replacements = false")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")  # last, because it locks the settings above too


def _cast_zoned(sql: str, types: Sequence[str]) -> str:
    """Return the query with timestamps with time zone cast to text, for which DuckDB would need pytz."""
    casts = (f"CAST(c{position} AS {kind.replace(_ZONED, 'VARCHAR')})" for position, kind in enumerate(types))
    names = (f"c{position}" for position in range(len(types)))
    return f"SELECT {', '.join(casts)} FROM ({sql.rstrip().rstrip(';')}\n) AS given({', '.join(names)})"


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def refresh_index(run: RunDir, sink: EventSink) -> None:
    """Index appended lines, so that the next reader need not; a failure is only reported."""
    # The index is derived data: a full disk must not end the stage that has just stored its results.
    from webgym_cli.store.index.build import update

    try:
        update(run, sink)
    except StoreError as error:
        sink({"event": "index", "message": f"the index was not brought up to date: {error}"})


def format_duckdb_error(error: BaseException) -> str:
    """Return DuckDB's error message as one line, without its excerpt of the query."""
    return " ".join(str(error).partition("\nLINE ")[0].split())


def _files(run: RunDir) -> dict[str, list[Path]]:
    """Return the fragments of each table that cover the source files."""
    from webgym_cli.store.index import fragments
    from webgym_cli.store.index.schema import TABLES

    catalog = fragments.Catalog(run)
    files: dict[str, list[Path]] = {table: [] for table in TABLES}
    for source in fragments.list_sources(run):
        for span in catalog.chain(source):
            for table in source.tables:
                files[table].append(catalog.fragments(table, source.name)[span])
    return files


def _view(connection: DuckDBPyConnection, table: str, files: Mapping[RunDir, list[Path]]) -> None:
    """Create a table's view over its fragments; without fragments, an empty table."""
    from webgym_cli.store.index.schema import TABLES

    name = "stored" if table == "trajectories" else table
    parts = []
    for run, of in files.items():
        if listing := ", ".join(_quote(escape(str(file))) for file in of):  # a sibling may match `*` or `[x]`
            parts.append(f"SELECT *, {_quote(str(run.root))} AS run FROM read_parquet([{listing}])")
    if not parts:
        columns = "".join(f'"{column}" {kind}, ' for column, kind in TABLES[table].items())
        connection.execute(f"CREATE TABLE no_{name} ({columns}run VARCHAR)")
        parts = [f"SELECT * FROM no_{name}"]
    connection.execute(f"CREATE VIEW {name} AS {' UNION ALL BY NAME '.join(parts)}")
