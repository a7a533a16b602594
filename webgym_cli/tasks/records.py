"""Record files: JSON Lines or one JSON array, read record by record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from webgym_cli.errors import UsageError
from webgym_cli.tasks.format import load_object, parse_object
from webgym_cli.tasks.registry import BadTaskError

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
        raise BadTaskError(f"not JSON: {error}") from None
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
