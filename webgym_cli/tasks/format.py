"""Reads one task from JSON: by our own field names (`records/task.py`), by WebGym's, or as question and answer."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError
from pydantic_core import from_json

from webgym_cli.records.task import Task
from webgym_cli.tasks.question_answer import BadQuestionError, is_question, read_question
from webgym_cli.tasks.rubric import BadRubricError, has_unknown_fields, list_facts

WEBGYM = {
    "task_name": "instruction",
    "website": "start_url",
    "task_id": "id",
    "evaluator_reference": "rubric",
    "definite_answer": "reference_answer",
}
"""WebGym's names for our fields. Where a line has both, ours counts and theirs stays among `extra`."""

_OURS = frozenset(Task.model_fields) - {"extra"}
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:(?!\d+(?:[/?#]|$))", re.IGNORECASE)
"""A scheme, and not a host with its port (`localhost:8080`)."""
_PLAIN = re.compile(r"https?://[a-z0-9-]+(?:\.[a-z0-9-]+)+(?:[/?#]|$)")
_NO_HOST = re.compile(r"[\s\\<>\"]")


class BadTaskError(ValueError):
    """A line is no task. The message names the field as the line spells it; `advice` says how to mend it."""

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason)
        self.advice = advice


def parse_task(line: bytes) -> Task:
    """Return the task of one line of JSON. Raises `BadTaskError`."""
    return read_task(parse_object(line))


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object of one line. Raises `BadTaskError`."""
    try:
        value = from_json(line.rstrip(), cache_strings="keys")
    except ValueError as error:
        raise BadTaskError(f"not JSON: {str(error).replace(' at line 1 column', ' at column')}") from None
    return load_object(value)


def load_object(value: Any) -> dict[str, Any]:
    """Return a value of JSON that is an object. Raises `BadTaskError`."""
    if not isinstance(value, dict):
        raise BadTaskError("a task must be a JSON object")
    return value


def read_task(value: dict[str, Any]) -> Task:
    """Return the task of a JSON object, every unknown field kept in `extra`. Raises `BadTaskError`."""
    if is_question(value):
        try:
            return read_question(value)
        except BadQuestionError as error:
            raise BadTaskError(str(error)) from None
    fields, extra, spelling = _sort(value)
    environment = fields.setdefault("environment", _environment(fields, spelling))
    if "rubric" in fields:
        _take_rubric(fields, extra, spelling)
    fields.setdefault("difficulty", max(1, len(fields.get("rubric", ()))))
    if isinstance(fields["difficulty"], bool):
        raise BadTaskError(f"difficulty: Input should be a number, not {str(fields['difficulty']).lower()}")
    if environment in ("web", "sites"):
        _take_address(fields, spelling)
    if spelling:
        _take_webgym(fields, spelling)
    try:
        task = Task.model_validate({**fields, "extra": extra})
    except ValidationError as error:
        raise BadTaskError(_first(error, spelling)) from None
    _require_place(task, spelling)
    return task


def _sort(value: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Return our fields (null is as good as missing), the unknown ones, and WebGym's spelling where it stood."""
    fields = {key: item for key, item in value.items() if key in _OURS and item is not None}
    nested = value.get("extra")
    if nested is not None and not isinstance(nested, dict):
        raise BadTaskError("extra: Input should be a valid dictionary")
    extra = {**(nested or {}), **{key: item for key, item in value.items() if key not in _OURS and key != "extra"}}
    spelling = {}
    for theirs, ours in WEBGYM.items():
        if theirs in value and ours not in fields:
            spelling[ours] = theirs
            if (item := extra.pop(theirs)) is not None:
                fields[ours] = item
    return fields, extra, spelling


def _environment(fields: dict[str, Any], spelling: dict[str, str]) -> str:
    """Return the environment of a line that names none: an address or a field of WebGym's means the web."""
    url = fields.get("start_url")
    is_address = isinstance(url, str) and "://" in url
    return "web" if is_address or "start_url" in spelling or "instruction" in spelling else "miniwob"


def _take_rubric(fields: dict[str, Any], extra: dict[str, Any], spelling: dict[str, str]) -> None:
    given = fields["rubric"]
    try:
        fields["rubric"] = list_facts(given, verbatim="rubric" not in spelling)
    except BadRubricError as error:
        raise BadTaskError(f"{spelling.get('rubric', 'rubric')}{error}") from None
    if has_unknown_fields(given):
        extra.setdefault("evaluator_reference", given)


def _take_webgym(fields: dict[str, Any], spelling: dict[str, str]) -> None:
    """Mend what WebGym's files leave open: numbers as ids, no id at all, an empty answer for none."""
    if isinstance(number := fields.get("id"), int) and not isinstance(number, bool) and "id" in spelling:
        fields["id"] = str(number)
    if "id" not in fields and "instruction" in spelling:
        content = "\0".join(str(fields.get(name)) for name in ("instruction", "start_url", "difficulty"))
        fields["id"] = hashlib.sha256(content.encode()).hexdigest()[:16]
    if "reference_answer" in spelling and fields.get("reference_answer") == "":
        del fields["reference_answer"]


def _take_address(fields: dict[str, Any], spelling: dict[str, str]) -> None:
    """Give a bare domain its https:// and refuse what is no address of a web page."""
    name = spelling.get("start_url", "website" if "instruction" in spelling else "start_url")
    url = fields.get("start_url", "")
    if not isinstance(url, str):
        return  # the record says what type it must have
    url = url.strip()
    if not url:
        raise BadTaskError(f"{name}: a task on the web needs the address that it starts from")
    if not url.lower().startswith(("http://", "https://")):
        if _SCHEME.match(url):
            raise BadTaskError(f"{name}: {_short(url)} is neither http nor https")
        url = "https://" + url.lstrip("/")
    if not _names_a_host(url):
        raise BadTaskError(f"{name}: {_short(url)} is not the address of a web page")
    fields["start_url"] = url


def _names_a_host(url: str) -> bool:
    if _PLAIN.match(url):  # nearly all of them, at a fifth of the cost
        return True
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0 and not _NO_HOST.search(parts.netloc)
    except ValueError:  # a port that is no number, half an IPv6 address
        return False


def _require_place(task: Task, spelling: dict[str, str]) -> None:
    """Refuse a task that its environment can't start."""
    name = spelling.get("start_url", "start_url")
    if task.environment == "web" and not task.instruction.strip():
        name = spelling.get("instruction", "task_name" if spelling else "instruction")
        raise BadTaskError(f"{name}: a task on the web needs an instruction")
    if task.environment == "miniwob" and (task.start_url or task.id).removesuffix(".html") not in _miniwob_pages():
        page = _short(task.start_url or task.id)
        advice = f'{name} takes a page\'s name, like click-test.html; a task on the web has "environment": "web"'
        raise BadTaskError(f"MiniWoB has no page {page}", advice)
    if task.environment == "sites" and task.id not in _site_ids():
        raise BadTaskError(f"{spelling.get('id', 'id')}: the fixture sites have no task {_short(task.id)}")


def _first(error: ValidationError, spelling: dict[str, str]) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    field, *below = (str(part) for part in first["loc"])
    return f"{'.'.join((spelling.get(field, field), *below))}: {first['msg']}"


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:79]}…")


@cache
def _miniwob_pages() -> frozenset[str]:
    from webgym_cli.environments.miniwob.pages import list_pages

    return frozenset(list_pages())


@cache
def _site_ids() -> frozenset[str]:
    from webgym_cli.environments.fixture_sites.tasks import list_site_tasks

    return frozenset(task.id for task in list_site_tasks())
