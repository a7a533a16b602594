"""Record files (JSON Lines, one JSON array, tables, Parquet), and the conversion of other systems' records to tasks.

In a conversion invalid records are reported by number, and ids are unique.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial, reduce
from itertools import chain
from operator import getitem
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.tasks.files import place_files
from webgym_cli.tasks.format import MAX_STEPS, load_object, parse_object, read_task
from webgym_cli.tasks.registry import BadLine, BadTaskError, ConversionResult
from webgym_cli.util.json_values import as_object
from webgym_cli.util.registry import suggest_name
from webgym_cli.util.user_code import require_type

# Returns a record, or raises `BadTaskError`.
ReadRecord = Callable[[], dict[str, Any]]
BOM = b"\xef\xbb\xbf"
PARQUET = b"PAR1"
ARCHIVES = (b"PK\x03\x04", b"\x1f\x8b")
# Ending of a table's name -> what may separate its columns.
TABLES = {".csv": ",;\t", ".tsv": "\t"}


def require_lines(file: str, content: bytes) -> None:
    """Raise `UsageError` if the first bytes of a file indicate a table, an archive or an object over several lines."""
    first, _, rest = content.removeprefix(BOM).lstrip().partition(b"\n")
    is_spread = first.rstrip() == b"{" and rest.lstrip().startswith(b'"')
    if is_spread or content.startswith((PARQUET, *ARCHIVES)) or Path(file).suffix.lower() in TABLES:
        raise UsageError(f"{file}: not one task a line, as JSON", hint=f"webgym tasks convert {file} -o tasks.jsonl")


def is_array_start(content: bytes) -> bool:
    """Whether the first bytes of a file indicate one array, not JSON Lines."""
    return content.removeprefix(BOM).lstrip().startswith(b"[")


def read_array(content: bytes) -> Iterator[tuple[int, Any]]:
    """Return the records of an array with their numbers, from 1. Raises `BadTaskError` immediately."""
    try:
        values = from_json(content.removeprefix(BOM), cache_strings="keys")
    except ValueError as error:
        raise BadTaskError(f"not JSON in UTF-8: {error}") from None
    if not isinstance(values, list):
        raise BadTaskError("not one JSON array")
    return iter(enumerate(values, 1))


def iter_numbered_lines(lines: Iterable[bytes]) -> Iterator[tuple[int, int, bytes]]:
    """Yield number (from 1), byte offset and content of each non-blank line."""
    offset = 0
    for number, raw in enumerate(lines, 1):
        line = raw.removeprefix(BOM) if number == 1 else raw
        if line.strip():
            yield number, offset + len(raw) - len(line), line
        offset += len(raw)


def iter_records(lines: Iterable[bytes]) -> Iterator[tuple[int, ReadRecord]]:
    """Yield the number of each line or array record, from 1, and a function that reads it."""
    waiting = iter(lines)
    first = next(waiting, b"")
    if not is_array_start(first):
        for number, _, line in iter_numbered_lines(chain((first,), waiting)):
            yield number, partial(parse_object, line)
        return
    try:
        for number, value in read_array(first + b"".join(waiting)):
            yield number, partial(load_object, value)
    except BadTaskError as error:
        yield 1, partial(refuse, str(error))


def refuse(reason: str) -> dict[str, Any]:
    """Raise `BadTaskError` instead of returning a record."""
    raise BadTaskError(reason)


_RECORDS = "*.json"
_NUMBERS = re.compile(r"(\d+)")
_QUOTED = re.compile(r'"[^"]*"')
# Names of the list of records in a file that is one object; the first one also of those in a list of sets.
_LISTS = ("tasks", "data", "records", "examples", "questions")
# What `--field` names.
_FIELDS = (*(name for name in Task.model_fields if name != "extra"), MAX_STEPS)


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
                # NaN is what pandas has where there is no value.
                given = {name: value for name, value in record().items() if value == value}
                task = place_files(require_type(read(given, place), Task, "the format's function"), file.parent)
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


def convert_fields(path: Path, names: Mapping[str, str], start: str) -> ConversionResult:
    """Return the tasks of records with webgym's field names, or others: our name -> theirs (`a.b`: `b` within `a`).

    `start` is the start page of those that name none. Raises `UsageError` for a name that no record has.
    """
    if wrong := next((ours for ours in names if ours not in _FIELDS), None):
        raise UsageError(f"--field {wrong}: a task has no such field", hint=suggest_name(wrong, _FIELDS))
    lacking, known = set(names), dict[str, Any]()

    def read(record: Mapping[str, Any], _place: str) -> Task:
        known.update(record)
        renamed = rename_fields(record, names)
        lacking.difference_update(renamed)
        renamed = {key: value for key, value in renamed.items() if value not in (None, "")}
        if start or {"instruction", "task_name"} & renamed.keys():
            renamed.setdefault("environment", "web")
            if "website" not in renamed:
                renamed.setdefault("start_url", start)
        return read_named(renamed, names)

    result = convert_records(path, read)
    for ours in lacking:
        raise UsageError(f"--field {ours}={names[ours]}: no record has it", hint=f"the fields are: {', '.join(known)}")
    return result


def digest_record(record: Mapping[str, Any]) -> str:
    """Return the id of a record's task that has none: a hash of its content. Raises `BadTaskError`."""
    try:
        content = json.dumps(dict(record), sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:  # infinity, or an unpaired surrogate
        raise BadTaskError(f"the record can't be stored: {error}") from None
    return hashlib.sha256(content).hexdigest()[:16]


def read_named(value: dict[str, Any], names: Mapping[str, str]) -> Task:
    """Return the task of an object with our names. Raises `BadTaskError` with theirs: `names`, our name -> theirs."""
    try:
        return read_task(value)
    except BadTaskError as error:
        field, colon, reason = str(error).partition(":")
        raise BadTaskError(f"{names.get(field, field)}{colon}{reason}", error.advice) from None


def parse_start(sites: Sequence[str]) -> str:
    """Return the URL of `--site start=URL`; empty if there is no `--site`. Raises `UsageError`."""
    given = dict(text.partition("=")[::2] for text in sites)
    start = given.pop("start", "")
    if given or (sites and not start.startswith(("http://", "https://"))):
        raise UsageError(
            "--site: only the start page of tasks that name none", hint="--site start=https://www.bing.com"
        )
    return start


def rename_fields(record: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a record with our names for the fields that `names` has: our name -> theirs."""
    renamed = {key: value for key, value in record.items() if key not in {*names, *names.values()}}
    for ours, theirs in names.items():
        with suppress(KeyError, TypeError):
            renamed[ours] = record[theirs] if theirs in record else reduce(getitem, theirs.split("."), record)
    return renamed


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


def read_records(path: Path) -> Iterator[tuple[int, ReadRecord]]:
    """Yield the number of each record of a file, from 1, and a function that reads it.

    A file is JSON Lines, one JSON array or record, Parquet, or CSV or TSV (by its name). Raises `UsageError`.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror}", hint="name a file that is there") from None
    if content.startswith(ARCHIVES):
        raise UsageError(
            f"{path}: an archive",
            hint=f"unpack it first: python -m zipfile -e {path} FOLDER, or gunzip; save a sheet as CSV",
        )
    if delimiters := TABLES.get(path.suffix.lower()):
        yield from _table_records(content, delimiters)
        return
    if content.startswith(PARQUET):
        yield from _parquet_records(content)
        return
    with suppress(ValueError):  # not JSON Lines, but one value
        values = _open_lists(from_json(content.removeprefix(BOM), cache_strings="keys"))
        yield from ((number, partial(load_object, value)) for number, value in enumerate(values, 1))
        return
    yield from iter_records(content.splitlines(keepends=True))


def _open_lists(value: Any) -> list[Any]:
    """Return the records of a JSON value: an object's list, or those of sets of tasks, else the value's own."""
    values = value if isinstance(value, list) else [value]
    for name in _LISTS if isinstance(value, dict) else _LISTS[:1]:
        if values and all(isinstance(as_object(one).get(name), list) for one in values):
            return list(chain.from_iterable(one[name] for one in values))
    return values


def open_table(content: bytes, delimiters: str) -> Iterator[dict[str | Any, str | Any]]:
    """Yield the rows of a table. `delimiters`: what may separate its columns. Raises `csv.Error`."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise csv.Error(f"not UTF-8, as which a spreadsheet can save it: {error}") from None
    header = _QUOTED.sub("", text.partition("\n")[0])
    delimiter = max(delimiters, key=header.count)
    if delimiter != "\t":  # blanks before a quoted value, as some write them, are no part of it
        text = re.sub(rf'("[^"]*")|(?<={delimiter}) +(?=(?:"[^"]*")+(?:[{delimiter}\r\n]|\Z))', r"\1", text)
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows.fieldnames = names = [name.strip() for name in rows.fieldnames or ()]
    named = [name for name in names if name]  # a sheet's empty columns have no names
    if len({*named}) < len(named):
        raise csv.Error(f"two columns have the same name: {', '.join(names)}")
    for row in rows:
        if any(str(value or "").strip() for value in row.values()):  # a spreadsheet may write empty rows: `,,`
            yield row


def _table_records(content: bytes, delimiters: str) -> Iterator[tuple[int, ReadRecord]]:
    number = 0
    try:
        for number, row in enumerate(open_table(content, delimiters), 1):
            if None in row:  # more fields than the header names
                yield number, partial(refuse, f"more than {len(row) - 1} fields")
            else:
                yield number, partial(dict, row)
    except csv.Error as error:
        yield number + 1, partial(refuse, f"no table: {error}")


def _parquet_records(content: bytes) -> Iterator[tuple[int, ReadRecord]]:
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(pyarrow.BufferReader(content))
    except (pyarrow.ArrowException, OSError) as error:
        yield 1, partial(refuse, f"not Parquet: {error}")
        return
    for number, value in enumerate(table.to_pylist(), 1):
        yield number, partial(load_object, json.loads(json.dumps(value, default=_write_cell)))


def _write_cell(value: Any) -> str:
    """Return a value that JSON lacks as a text: bytes, as of a picture, in base64; a date or a decimal as it prints."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)
