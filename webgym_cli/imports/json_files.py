"""Files of JSON: lines, one array, or one object."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from webgym_cli.errors import StoreError
from webgym_cli.imports.source import NotUnderstood
from webgym_cli.util.files import open_regular, read_json

# Endings of files of JSON Lines, or of one array.
_SUFFIXES = (".jsonl", ".ndjson", ".json")
# Bytes at the start of a file that tell whether it is an array.
_START = 64


def read_json_lines(source: Path) -> Iterator[tuple[str, Any]]:
    """Yield the place and value of each line that is not blank; None for one that is no JSON, as a cut last line.

    A file that is one array has its values in place of lines, and a `.json` that is one value has one line.
    """
    with open_regular(source) as file:
        start = file.read(_START).removeprefix(BOM_UTF8).lstrip()
        is_whole = start[:1] == b"[" or source.suffix == ".json"
        whole = parse_json(start + file.read()) if is_whole else None
        if whole is not None:
            values = whole if isinstance(whole, list) else [whole]
            yield from ((f"{source}, item {number}", value) for number, value in enumerate(values, 1))
            return
        file.seek(0)
        for number, raw in enumerate(file, 1):
            if not raw.strip():
                continue
            yield f"{source}, line {number}", parse_json(raw)


def parse_json(raw: bytes | str) -> Any:
    """Return the value of a JSON text; None for another text."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def find_lines(path: Path, is_own: Callable[[Any], bool]) -> list[Path]:
    """Return the files of JSON Lines at or under a path whose first line has the form of a format.

    Files beside them whose first line is no JSON are among them: their reader says that they are damaged.
    """
    files = [path] if path.is_file() and path.suffix in _SUFFIXES else sorted(path.rglob("*.jsonl"))
    first = {file: _read_first(file) for file in files if file.is_file()}
    own = {file for file, value in first.items() if is_own(value)}
    return [file for file, value in first.items() if file in own or (own and value is None)]


def _read_first(file: Path) -> Any:
    try:
        return next((value for _, value in read_json_lines(file)), None)
    except OSError:
        return None


def read_object(file: Path) -> Any:
    """Read a JSON file. Raises `NotUnderstood`."""
    try:
        return read_json(file)
    except StoreError as error:
        raise NotUnderstood(str(error)) from None
