"""Reads the trainer's settings from JSON into `TrainerOptions`: what doesn't fit is refused with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from webgym_cli.config.suggest import explain
from webgym_cli.train.rl.options import TrainerOptions


class TrainingError(Exception):
    """The training can't be made; the text says why in one line, and what to do."""


def read_options(path: Path) -> TrainerOptions:
    """Return the settings of a JSON file. Raises `TrainingError` naming the place of what is wrong in it."""
    return parse_options(_read(path), str(path))


def parse_options(text: str | bytes, source: str) -> TrainerOptions:
    """Return the settings of a JSON text from the named source. Raises `TrainingError`."""
    try:
        return TrainerOptions.model_validate_json(text, strict=True)
    except ValidationError as error:
        key, words = explain(error, TrainerOptions)
        raise TrainingError(f"{source}: {key}: {words}" if key else f"{source}: {words}") from None


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object that a file holds. Raises `TrainingError`."""
    try:
        value = json.loads(_read(path))
    except ValueError as error:
        raise TrainingError(f"{path}: is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise TrainingError(f"{path}: a JSON object is wanted")
    return value


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TrainingError(f"{path}: can't be read: {error.strerror}") from error
