"""Conversion of GSM8K's published rows: `question`, and a worked `answer` that ends with `#### 72`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.environments.tools.question_answer import read_question
from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.tasks.convert import convert_records
from webgym_cli.tasks.registry import BadTaskError, ConversionResult, TaskFormat

_FINAL = re.compile(r"####\s*([-+]?[\d,]*\.?\d+)\s*$")


def convert_gsm8k(path: Path, settings: Settings, sites: Sequence[str]) -> ConversionResult:
    """Return the questions of a file (JSON Lines, an array, Parquet). Raises `UsageError` if a site's URL is given."""
    if sites:
        raise UsageError("--site: questions have no site", hint="leave --site out")
    return convert_records(path, _read_row)


def _read_row(value: Mapping[str, Any], _place: str) -> Task:
    """Return the question with its final number as `answer` and the worked one as `solution`."""
    worked = value.get("answer")
    if isinstance(worked, bool) or not isinstance(worked, str | int | float):
        raise BadTaskError("answer: a worked answer that ends with #### and a number, or a number, is needed")
    final = _FINAL.search(worked) if isinstance(worked, str) else None
    if isinstance(worked, str) and final is None:
        raise BadTaskError(f"answer: it does not end with #### and a number: {worked[-40:]!r}")
    row = dict(value) if final is None else {**value, "answer": final[1].replace(",", ""), "solution": worked}
    if (task := read_question(row)) is None:
        raise BadTaskError("question: a text is needed")
    return task


GSM8K = TaskFormat(convert_gsm8k)
