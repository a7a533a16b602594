"""Reads question/answer records: `question` is asked, every other field goes to the reward function by its name."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from webgym_cli.records.task import Task

_OF_OTHERS = frozenset({"instruction", "task_name", "start_url", "website"})
"""Fields that make a record a task of another kind, in which `question` is an unknown field like any other."""
_SHOWN = (str, int, float)


class BadQuestionError(ValueError):
    """A record is no question. The message names the field."""


def is_question(value: dict[str, Any]) -> bool:
    """Tell whether a JSON object is a question/answer record."""
    return "question" in value and not _OF_OTHERS & value.keys() and value.get("environment", "tools") == "tools"


def read_question(value: dict[str, Any]) -> Task:
    """Return the task of a question/answer record. Raises `BadQuestionError`.

    Without an `id` it has a hash of the whole record. An answer that is a text or a number is the reference answer too.
    """
    question = value["question"]
    if not isinstance(question, str) or not question.strip():
        raise BadQuestionError("question: a text that is not empty is needed")
    given = value.get("id")
    if given is not None and (isinstance(given, bool) or not isinstance(given, str | int) or given == ""):
        raise BadQuestionError("id: a text or a whole number is needed")
    fields = {name: item for name, item in value.items() if name not in ("question", "id", "environment")}
    answer = fields.get("answer")
    try:
        content = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:  # infinity, or half a character: it could not be stored
        raise BadQuestionError(f"the record can't be stored: {error}") from None
    return Task(
        id=hashlib.sha256(content).hexdigest()[:16] if given is None else str(given),
        instruction=question,
        environment="tools",
        reference_answer=str(answer) if isinstance(answer, _SHOWN) and not isinstance(answer, bool) else None,
        extra=fields,
    )
