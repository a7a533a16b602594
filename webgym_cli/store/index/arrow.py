"""The index's rows as Arrow tables, and their Parquet files. Imported only when rows are written or read back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from webgym_cli.errors import StoreError
from webgym_cli.records.usage import TokenUsage
from webgym_cli.store.index.fragments import ByteRange, SourceFile, fragments_folder, name_fragment
from webgym_cli.store.index.schema import (
    BOOL,
    COUNTS,
    FLOAT,
    INT,
    LONG,
    MODEL_TOKENS,
    MOMENT,
    REAL,
    REALS,
    SAMPLING,
    TABLES,
    TEXT,
    Row,
)
from webgym_cli.store.run import RunDir

_TYPES = {TEXT: pa.string(), INT: pa.int32(), LONG: pa.int64(), FLOAT: pa.float32(), REAL: pa.float64()}
_TYPES |= {BOOL: pa.bool_(), MOMENT: pa.timestamp("us")}
_TYPES |= {REALS: pa.map_(pa.string(), pa.float64()), COUNTS: pa.map_(pa.string(), pa.int32())}
_SAMPLING = (("temperature", REAL), ("top_k", INT), ("top_p", REAL), ("min_p", REAL), ("logprobs", TEXT))
_TYPES[SAMPLING] = pa.struct([(name, _TYPES[kind]) for name, kind in _SAMPLING])
_TYPES[MODEL_TOKENS] = pa.map_(pa.string(), pa.struct([(name, pa.int64()) for name in TokenUsage.model_fields]))


def arrow_schema(table: str) -> pa.Schema:
    """Return the schema of a table of the index."""
    return pa.schema([(name, _TYPES[kind]) for name, kind in TABLES[table].items()])


def table_of(name: str, rows: list[Row]) -> pa.Table:
    """Return rows as an Arrow table of the index."""
    schema = arrow_schema(name)
    return pa.table([_column([row[field.name] for row in rows], field.type) for field in schema], schema=schema)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return a column; numbers outside the type's range become null, since Python's are unbounded."""
    try:
        return pa.array(values, kind)
    except (OverflowError, pa.ArrowInvalid):
        return pa.array([value if _fits(value, kind) else None for value in values], kind)


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.scalar(value, kind)
    except (OverflowError, pa.ArrowInvalid):
        return False
    return True


def write(run: RunDir, source: SourceFile, span: ByteRange, tables: dict[str, pa.Table], tail: str) -> None:
    """Write the fragments of a range, each atomically by rename, the main table's last. Raises `StoreError`."""
    for table in source.tables:
        folder = fragments_folder(run) / table
        temporary = folder / f".{source.name}.{span.start}-{span.end}.new"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(tables[table], temporary, compression="zstd")
            temporary.replace(folder / name_fragment(source, span, tail, temporary))
        except (OSError, pa.ArrowException) as error:
            with suppress(OSError):
                temporary.unlink()
            raise StoreError(
                f"{folder}: the index can't be written: {' '.join(str(error).split())}",
                hint="free disk space or fix the permissions, then run the same command again; nothing is lost",
            ) from error


def read(path: Path, table: str) -> pa.Table:
    """Return a fragment's rows. Raises `OSError` or `pa.ArrowException` if it is damaged."""
    return pq.read_table(path, schema=arrow_schema(table))


def join(paths: Sequence[Path], table: str) -> pa.Table:
    """Return the rows of several fragments."""
    return pa.concat_tables([read(path, table) for path in paths])
