"""Reads the trainer's settings from JSON into `TrainerOptions`: what doesn't fit is refused with its place."""

from __future__ import annotations

import dataclasses
import difflib
import json
import types
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from webgym_cli.train.rl.options import TrainerOptions

T = TypeVar("T")


class TrainingError(Exception):
    """The training can't be made; the text says why in one line, and what to do."""


def read_options(path: Path) -> TrainerOptions:
    """Return the settings of a JSON file. Raises `TrainingError` naming the place of what is wrong in it."""
    value = read_object(path)
    return build(TrainerOptions, value, str(path))


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object that a file holds. Raises `TrainingError`."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TrainingError(f"{path}: can't be read: {error.strerror}") from error
    except ValueError as error:
        raise TrainingError(f"{path}: is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise TrainingError(f"{path}: a JSON object is wanted")
    return value


def build(kind: type[T], values: dict[str, Any], place: str) -> T:
    """Return a record of a class from plain values. Raises `TrainingError`."""
    hints = get_type_hints(kind)
    for name in values:
        if name not in hints:
            near = difflib.get_close_matches(name, hints, 1)
            advice = f"did you mean {near[0]}?" if near else f"known are {', '.join(hints)}"
            raise TrainingError(f"{place}: {name}: no such setting; {advice}")
    given = {name: _converted(hints[name], value, f"{place}: {name}") for name, value in values.items()}
    for entry in dataclasses.fields(kind):  # type: ignore[arg-type]
        missing = entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING
        if missing and entry.name not in given:
            raise TrainingError(f"{place}: {entry.name}: is missing")
    try:
        return kind(**given)
    except ValueError as error:
        raise TrainingError(f"{place}: {error}") from error


def _converted(hint: Any, value: Any, place: str) -> Any:
    """Return the value as the type that is asked for."""
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return build(hint, value, place)  # type: ignore[arg-type]
    if _fits(hint, value):
        return tuple(value) if get_origin(hint) is tuple else value
    raise TrainingError(f"{place}: {json.dumps(value)} is not {_words(hint)}")


def _fits(hint: Any, value: Any) -> bool:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in parts
    if origin in (Union, types.UnionType):
        return any(_fits(part, value) for part in parts)
    if origin is tuple:
        return isinstance(value, list) and len(value) == len(parts) and all(map(_fits, parts, value))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is hint


def _words(hint: Any) -> str:
    """Return what a type wants, for a person."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if origin in (Union, types.UnionType):
        return " or ".join(_words(part) for part in parts)
    if origin is tuple:
        return f"a list of {len(parts)} numbers"
    names: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return names.get(hint, "null" if hint is type(None) else "an object")
