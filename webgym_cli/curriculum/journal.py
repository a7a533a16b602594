"""What was answered, stored as it comes: a command that was killed asks only what is still open."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from webgym_cli.records.base import Record
from webgym_cli.util.files import append_lines, read_lines


class StoredAnswer(Record):
    """One answer, as a line of `FILE.asked.jsonl`."""

    key: str
    """SHA-256 of all that was asked: another model or other words are another question."""
    tasks: tuple[str, ...] = ()
    """The new tasks, of a request for some."""
    probability: float | None = Field(default=None, ge=0, le=1)
    """How likely the policy's success is, of a question to the critic."""
    feasible: bool | None = None
    """Whether the task can be done, of a question for that."""
    reason: str = ""
    """Why, in the model's words; of an answer that can't be read what is wrong with it."""


class AnswerJournal:
    """The answers so far."""

    def __init__(self, path: Path) -> None:
        """Read what is there; a torn or damaged line is asked again."""
        self._path = path
        self._known: dict[str, StoredAnswer] = {}
        for _, line in read_lines(path) if path.is_file() else ():
            try:
                answer = StoredAnswer.model_validate_json(line)
            except ValidationError:
                continue
            self._known[answer.key] = answer

    def get(self, key: str) -> StoredAnswer | None:
        """Return what was answered to a question."""
        return self._known.get(key)

    def put(self, answer: StoredAnswer) -> None:
        """Store an answer durably. Raises `StoreError`."""
        append_lines(self._path, answer.model_dump_json(exclude_defaults=True))
        self._known[answer.key] = answer


def compute_key(*content: Any) -> str:
    """Return the key of a question by all that it is made of."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
