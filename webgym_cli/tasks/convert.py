"""Conversion of other systems' records to tasks: invalid records are reported by number, and ids are unique."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.tasks.files import place_files
from webgym_cli.tasks.format import load_object, parse_object
from webgym_cli.tasks.records import BOM, ReadRecord, is_array_start, iter_records, refuse
from webgym_cli.tasks.registry import BadLine, BadTaskError, ConversionResult

_RECORDS = "*.json"
_NUMBERS = re.compile(r"(\d+)")
_PARQUET = b"PAR1"
_ARCHIVES = (b"PK\x03\x04", b"\x1f\x8b")
_DELIMITERS = {".csv": ",", ".tsv": "\t"}


def convert_records(path: Path, read: Callable[[Mapping[str, Any], str], Task]) -> ConversionResult:
    """Return the tasks of a file (an array, one record, JSON Lines, or Parquet) or of a folder of `*.json` files.

    `read` converts one record, located by `FILE:NUMBER`, or raises `BadTaskError`. Raises `UsageError` if there is
    nothing to read.
    """
    result, named = ConversionResult(), dict[str, tuple[Task, str]]()
    for file in _files(path):
        for number, record in read_records(file):
            place = f"{file}:{number}"
            try:
                task = place_files(read(record(), place), file.parent)
                first, other = named.setdefault(task.id, (task, place))
                if first is not task and first != task:
                    raise BadTaskError(f"task_id: {task.id} is the one of {other} too")
            except BadTaskError as error:
                result.bad.append(BadLine(str(file), number, error.with_advice))
                continue
            if first is task:
                result.tasks.append(task)
            else:
                result.repeated += 1
    if not result.tasks and not result.bad:
        raise UsageError(f"{path}: no record in the file", hint="name a file with records, or a folder of such files")
    return result


def _files(path: Path) -> list[Path]:
    """Return a folder's files ordered by the numbers in their names; otherwise the file itself."""
    if not path.is_dir():
        return [path]

    def by_number(file: Path) -> list[tuple[bool, int, str]]:
        parts = _NUMBERS.split(file.name)
        return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]

    files = sorted(path.glob(_RECORDS), key=by_number)
    if not files:
        raise UsageError(f"{path}: there is no {_RECORDS} in the folder", hint="name the folder with the records")
    return files


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror}", hint="name a file that is there") from None


def read_records(path: Path) -> Iterator[tuple[int, ReadRecord]]:
    """Yield the number of each record of a file, from 1, and a function that reads it.

    A file is JSON Lines, one JSON array or record, Parquet, or CSV or TSV (by its name). Raises `UsageError`.
    """
    content = _content(path)
    if content.startswith(_ARCHIVES):
        raise UsageError(f"{path}: an archive", hint=f"unpack it first: python -m zipfile -e {path} FOLDER, or gunzip")
    if delimiter := _DELIMITERS.get(path.suffix):
        yield from _table_records(content, delimiter)
        return
    if content.startswith(_PARQUET):
        yield from _parquet_records(content)
        return
    lines = content.splitlines(keepends=True)
    if not is_array_start(content) and sum(bool(line.strip()) for line in lines) > 1:
        with suppress(BadTaskError):  # one record over several lines
            yield 1, partial(load_object, parse_object(content.removeprefix(BOM)))
            return
    yield from iter_records(lines)


def _table_records(content: bytes, delimiter: str) -> Iterator[tuple[int, ReadRecord]]:
    number = 0
    try:
        rows = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""), delimiter=delimiter, strict=True)
        for number, row in enumerate(rows, 1):
            if None in row:  # more fields than the header names
                yield number, partial(refuse, f"more than {len(row) - 1} fields")
            else:
                yield number, partial(dict, row)
    except (UnicodeDecodeError, csv.Error) as error:
        yield number + 1, partial(refuse, f"no table in UTF-8: {error}")


def _parquet_records(content: bytes) -> Iterator[tuple[int, ReadRecord]]:
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(pyarrow.BufferReader(content))
    except (pyarrow.ArrowException, OSError) as error:
        yield 1, partial(refuse, f"not Parquet: {error}")
        return
    for number, value in enumerate(table.to_pylist(), 1):
        yield number, partial(load_object, value)
