"""Reads question/answer records: `question` is asked, every other field goes to the reward function by its name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from webgym_cli.records.task import Task
from webgym_cli.tasks.registry import BadTaskError

# Fields that make a record a task of another kind, in which `question` is an unknown field like any other.
_OF_OTHERS = frozenset({"instruction", "task_name", "start_url", "website"})
_SHOWN = (str, int, float)


def read_question(value: Mapping[str, Any]) -> Task | None:
    """Return the task of a question/answer record; None for another record. Raises `BadTaskError`.

    Without an `id` it has a hash of the whole record. An answer that is a text or a number is the reference answer too.
    """
    if "question" not in value or _OF_OTHERS & value.keys():
        return None
    question = value["question"]
    if not isinstance(question, str) or not question.strip():
        raise BadTaskError("question: a text that is not empty is needed")
    given = value.get("id")
    if given is not None and (isinstance(given, bool) or not isinstance(given, str | int) or given == ""):
        raise BadTaskError("id: a text or a whole number is needed")
    fields = {name: item for name, item in value.items() if name not in ("question", "id", "environment")}
    answer = fields.get("answer")
    try:
        content = json.dumps(dict(value), sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:  # infinity, or half a character: it could not be stored
        raise BadTaskError(f"the record can't be stored: {error}") from None
    return Task(
        id=hashlib.sha256(content).hexdigest()[:16] if given is None else str(given),
        instruction=question,
        environment="tools",
        reference_answer=str(answer) if isinstance(answer, _SHOWN) and not isinstance(answer, bool) else None,
        extra=fields,
    )
