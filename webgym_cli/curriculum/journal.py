"""Journal of received answers: an interrupted command repeats only open requests."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from webgym_cli.records.base import Record
from webgym_cli.util.files import append_lines, read_valid_lines


class StoredAnswer(Record):
    """One answer, a line of `FILE.asked.jsonl`."""

    key: str
    """SHA-256 of the list of all parts of the request, including model and prompt."""
    tasks: tuple[str, ...] = ()
    """Generated tasks, for a generation request."""
    probability: float | None = Field(default=None, ge=0, le=1)
    """Success probability, for a request to the critic."""
    feasible: bool | None = None
    """Whether the task is feasible, for a feasibility request."""
    reason: str = ""
    """The model's reason; for an unreadable answer, what is wrong with it."""


class AnswerJournal:
    """Stored answers of a task generation."""

    def __init__(self, path: Path) -> None:
        """Read the file; truncated and damaged lines are ignored, so their requests are repeated."""
        self._path = path
        self._known = {answer.key: answer for answer in read_valid_lines(path, StoredAnswer.model_validate_json)}

    def get(self, key: str) -> StoredAnswer | None:
        """Return the stored answer to a request."""
        return self._known.get(key)

    def list_tasks(self, key: str) -> tuple[str, ...]:
        """Return the tasks of the stored answer to a request; none without one."""
        answer = self._known.get(key)
        return answer.tasks if answer else ()

    def put(self, answer: StoredAnswer) -> None:
        """Store an answer durably. Raises `StoreError`."""
        append_lines(self._path, answer.model_dump_json(exclude_defaults=True))
        self._known[answer.key] = answer
