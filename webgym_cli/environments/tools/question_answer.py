"""Parser of question/answer records: all fields except the question are passed to the reward function by name.

The question's field may be `question`, `prompt`, `problem` or `messages` (the first that exists): a text, or chat
messages. Images are in the field `images` (or `image`), or among the parts of the message.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from webgym_cli.environments.tools.question_images import list_images
from webgym_cli.records.sample import IMAGE
from webgym_cli.records.task import Task
from webgym_cli.tasks.registry import BadTaskError
from webgym_cli.util.json_values import as_object

# Fields of other kinds of tasks, in which `question` is an unknown field.
_OF_OTHERS = frozenset({"instruction", "task_name", "start_url", "website"})
_SHOWN = (str, int, float)
# Names of the question's field in common datasets, the most specific first.
_QUESTIONS = ("question", "prompt", "problem", "messages")


def read_question(value: Mapping[str, Any]) -> Task | None:
    """Return the task of a question/answer record; None for another record. Raises `BadTaskError`.

    Without an `id` it gets a hash of the record. An answer that is a text or number is also the reference answer.
    """
    name = next((name for name in _QUESTIONS if name in value), "")
    if not name or _OF_OTHERS & value.keys():
        return None
    question, images = _read_text(name, value[name])
    images += [place for field in ("images", "image") if value.get(field) for place in list_images(value[field])]
    if images:
        question = question.replace(IMAGE, "").strip()
    if not question:
        raise BadTaskError(f"{name}: a text beside the pictures is needed")
    given = value.get("id")
    if given is not None and (isinstance(given, bool) or not isinstance(given, str | int) or given == ""):
        raise BadTaskError("id: a text or a whole number is needed")
    fields = {key: item for key, item in value.items() if key not in (name, "id", "environment", "image")}
    if images:
        fields["images"] = images
    answer = fields.get("answer")
    try:
        content = json.dumps(dict(value), sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:  # infinity, or an unpaired surrogate, which could not be stored
        raise BadTaskError(f"the record can't be stored: {error}") from None
    return Task(
        id=hashlib.sha256(content).hexdigest()[:16] if given is None else str(given),
        instruction=question,
        environment="tools",
        reference_answer=str(answer) if isinstance(answer, _SHOWN) and not isinstance(answer, bool) else None,
        extra=fields,
    )


def _read_text(name: str, given: Any) -> tuple[str, list[str]]:
    """Return the question and its images: a text, or the parts of the one message. Raises `BadTaskError`."""
    images: list[str] = []
    if isinstance(given, list):
        message = given[0] if len(given) == 1 and isinstance(given[0], Mapping) else {}
        if message.get("role") != "user":
            advice = "a system message is the setting agent.system_prompt"
            raise BadTaskError(f"{name}: a text, or one message by the user, is needed", advice)
        given = message.get("content")
        if isinstance(given, list):
            parts = list(map(as_object, given))
            if wrong := next((part for part in parts if part.get("type") not in ("text", "image", "image_url")), None):
                raise BadTaskError(f"{name}: a message of texts and pictures is needed, not of {wrong.get('type')}")
            images = [place for part in parts if part["type"] != "text" for place in list_images(part[part["type"]])]
            given = "\n".join(str(part.get("text")) for part in parts if part["type"] == "text")
    if not isinstance(given, str) or not given.strip():
        raise BadTaskError(f"{name}: a text that is not empty is needed")
    return given, images
