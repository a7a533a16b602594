"""Parser of one task in JSON: with webgym's field names (`records/task.py`), WebGym's, or as question and answer.

WebGym's rubrics are a text, or a list of texts, described facts or fact groups: one text per fact is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from webgym_cli.errors import UsageError
from webgym_cli.records.base import describe_problem
from webgym_cli.records.task import Task
from webgym_cli.records.webarena import OR
from webgym_cli.tasks.encryption import CANARY, decrypt
from webgym_cli.tasks.files import IMAGES, UPLOADS
from webgym_cli.tasks.registry import BadTaskError, TaskFields, TaskSource, all_sources, find_source, suggest_format
from webgym_cli.util.json_values import as_list, as_object, parse_nested
from webgym_cli.util.optional import known_or, when
from webgym_cli.util.urls import has_userinfo

# WebGym's names of our fields. If a line has both, ours is used and WebGym's is kept in `extra`.
WEBGYM = {
    "task_name": "instruction",
    "website": "start_url",
    "task_id": "id",
    "evaluator_reference": "rubric",
    "definite_answer": "reference_answer",
}

# Level of a task -> its number of facts, which decides its band.
LEVELS = {"easy": 1, "medium": 4, "hard": 7}
MAX_STEPS = "max_steps"

# Names of the instruction, ours and WebGym's.
_INSTRUCTIONS = ("instruction", "task_name")
_OURS = frozenset(Task.model_fields) - {"extra"}
_DEFAULT = str(Task.model_fields["environment"].default)


def parse_task(line: bytes) -> Task:
    """Parse the task on one line of JSON. Raises `BadTaskError`."""
    return read_task(parse_object(line))


def parse_object(line: bytes) -> dict[str, Any]:
    """Parse the JSON object on one line. Raises `BadTaskError`."""
    try:
        value = from_json(line.rstrip(), cache_strings="keys")
    except ValueError as error:
        raise BadTaskError(f"not JSON in UTF-8: {str(error).replace(' at line 1 column', ' at column')}") from None
    return load_object(value)


def load_object(value: Any) -> dict[str, Any]:
    """Return a JSON value that must be an object. Raises `BadTaskError`."""
    if not isinstance(value, dict):
        raise BadTaskError("a task must be a JSON object")
    return value


def read_task(value: dict[str, Any]) -> Task:
    """Return the task of a JSON object, with unknown fields in `extra`. Raises `BadTaskError`."""
    _refuse_canary(value)
    try:
        return _read_task(value)
    except BadTaskError as error:
        if value.keys().isdisjoint(_INSTRUCTIONS) and (advice := suggest_format(frozenset(value))):
            # an environment that takes tasks without an instruction advises for its own
            reason = "a record of a benchmark as it is published" if error.advice else str(error)
            raise BadTaskError(reason, advice) from None
        raise


def _read_task(value: dict[str, Any]) -> Task:
    for source in _readers(value.get("environment")):
        if source.read_record is not None and (task := source.read_record(value)) is not None:
            return task
    record = _sort(value)
    fields, source = record.fields, _find_environment(record)
    fields.setdefault("environment", source.name)
    if "rubric" in fields:
        _take_rubric(record)
    fields.setdefault("difficulty", max(1, len(fields.get("rubric", ()))))
    if isinstance(given := fields["difficulty"], bool):
        raise BadTaskError(f"difficulty: Input should be a number, not {str(given).lower()}")
    fields["difficulty"] = LEVELS.get(str(given).casefold(), given)
    _refuse_userinfo(record)
    _take_limit(record.extra)
    if source.complete is not None:
        source.complete(record)
    _complete(record)
    try:
        task = Task.model_validate({**fields, "extra": record.extra})
        if source.check_task is not None:
            source.check_task(task, record)
    except ValidationError as error:
        raise BadTaskError(f"{_first(error, record.spelling)}{_guess_misspelt(record)}") from None
    except BadTaskError as error:
        raise BadTaskError(f"{error}{_guess_misspelt(record)}", error.advice) from None
    return task


def _readers(named: Any) -> Iterable[TaskSource]:
    """Return the environments that may read the record: the named one, otherwise all."""
    if named is None:
        return all_sources()
    try:
        return (find_source(str(named)),)
    except UsageError:  # reported by `_find_environment` with the rest of the record
        return ()


def _sort(value: dict[str, Any]) -> TaskFields:
    """Return our fields (without nulls), the unknown ones, and the WebGym names that were used."""
    fields = {key: item for key, item in value.items() if key in _OURS and item is not None}
    nested = value.get("extra")
    if nested is not None and not isinstance(nested, dict):
        raise BadTaskError("extra: it should be a table of names and values")
    extra = {**(nested or {}), **{key: item for key, item in value.items() if key not in _OURS and key != "extra"}}
    spelling = {}
    for theirs, ours in WEBGYM.items():
        if theirs in value and ours not in fields:
            spelling[ours] = theirs
            if (item := extra.pop(theirs)) is not None:
                fields[ours] = item
    return TaskFields(fields, extra, spelling)


def _find_environment(record: TaskFields) -> TaskSource:
    """Return the environment of a record: the named one, else the first that claims it, else the default."""
    named = record.fields.get("environment")
    if named is None:
        claiming = (source for source in all_sources() if source.claims is not None and source.claims(record))
        named = next((source.name for source in claiming), _DEFAULT)
    try:
        return find_source(str(named))
    except UsageError as error:
        raise BadTaskError(f"environment: {error}; {error.hint}") from None


def _refuse_canary(value: Mapping[str, Any]) -> None:
    fields = {**as_object(value.get("extra")), **value}
    if CANARY not in fields:
        return
    texts = (value.get("instruction"), value.get("reference_answer"))
    try:  # runs and exports repeat their tasks' texts
        for text in texts if texts[1] else texts[:1]:
            decrypt(str(text), str(fields[CANARY]))
    except ValueError:
        reason = "canary: the task is not encrypted with it, and its authors ask that no file has it in plain text"
        raise BadTaskError(reason, "webgym tasks convert FILE --format browsecomp keeps tasks encrypted") from None
    if not value.get("start_url") or value.get("check") or value.get("rubric"):  # a judge gets the decrypted answer
        raise BadTaskError("canary: an encrypted task needs a start_url, and has neither check nor rubric")


def _refuse_userinfo(record: TaskFields) -> None:
    if has_userinfo(str(record.fields.get("start_url", ""))):
        name = record.spelling.get("start_url", "start_url")
        raise BadTaskError(
            f"{name}: an address with a user or password would reach prompts and files",
            "leave them out of the address and set browser.http_credentials",
        )


def _take_rubric(record: TaskFields) -> None:
    given = parse_nested(record.fields["rubric"])
    try:
        record.fields["rubric"] = list_facts(given, verbatim="rubric" not in record.spelling)
    except BadRubricError as error:
        raise BadTaskError(f"{record.name('rubric')}{error}") from None
    if has_unknown_fields(given):
        record.extra.setdefault("evaluator_reference", given)


def _take_limit(extra: dict[str, Any]) -> None:
    """Normalize a task's own step limit. Raises `BadTaskError`."""
    if (given := extra.get(MAX_STEPS)) is None:
        return
    if isinstance(given, bool) or not str(given).isdecimal() or int(given) < 1:
        raise BadTaskError(f"{MAX_STEPS}: a whole number from 1 is needed")
    extra[MAX_STEPS] = int(given)


def _complete(record: TaskFields) -> None:
    """Numbers become texts, accepted answers one text, a missing id is generated, WebGym's empty answer is none."""
    fields = record.fields
    if is_number(number := fields.get("id")):
        fields["id"] = str(number)
    if "id" not in fields and fields.get("instruction"):
        content = "\0".join(str(fields.get(name)) for name in ("instruction", "start_url", "difficulty"))
        content += "".join(f"\0{record.extra[name]}" for name in (IMAGES, UPLOADS) if name in record.extra)
        fields["id"] = hashlib.sha256(content.encode()).hexdigest()[:16]
    answer = fields.get("reference_answer")
    answers = answer if isinstance(answer, list) and answer else [answer]
    if all(isinstance(one, str) or is_number(one) for one in answers):
        fields["reference_answer"] = OR.join(map(str, answers))
    if answer == "" and "reference_answer" in record.spelling:
        del fields["reference_answer"]


def is_number(value: Any) -> bool:
    """Whether a value is a number, which true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _first(error: ValidationError, spelling: Mapping[str, str]) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    field, *below = (str(part) for part in first["loc"])
    if first["type"] == "missing" and field == "id":  # else it were made of the instruction
        return "the fields id and instruction are missing"
    if first["type"] == "missing" and not below:
        return f"the field {spelling.get(field, field)} is missing"
    return f"{'.'.join((spelling.get(field, field), *below))}: {describe_problem(first)}"


def _guess_misspelt(record: TaskFields) -> str:
    """Return a question about a misspelt field name that the record may have; empty if no name is close."""
    lacking = [name for name in (*_OURS, *WEBGYM) if WEBGYM.get(name, name) not in record.fields]
    near = {name: get_close_matches(name, lacking, n=1, cutoff=0.8) for name in record.extra}
    return "".join(f"; did you mean {known[0]!r} by {name!r}?" for name, known in near.items() if known)


class BadRubricError(ValueError):
    """Rubric of an unknown shape. The message starts with the location, `: ...` or `.3.facts: ...`, counted from 0."""


def list_facts(value: Any, *, verbatim: bool = False) -> tuple[str, ...]:
    """Return the facts of a rubric as texts, without blank ones. Raises `BadRubricError`.

    `verbatim`: keep a list of texts unchanged, as in webgym's own files.
    """
    if verbatim and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    facts: list[str] = []
    if isinstance(value, list):
        for place, item in enumerate(value):
            _take_fact(item, place, f".{place}", facts)
    else:
        _take_fact(value, 0, "", facts)
    return tuple(facts)


def has_unknown_fields(value: Any) -> bool:
    """Whether a rubric has fields beyond its facts' texts, so that the original should be kept."""
    return any(isinstance(item, dict) for item in as_list(value))


def _take_fact(item: Any, place: int, where: str, facts: list[str]) -> None:
    """Append a fact, or those of a group as `[Group id: description] fact`, its number from 1 in place of no id."""
    if not isinstance(item, dict) or (given := item.get("facts")) is None:
        problem = f"{where}: neither a text, nor a fact with a description, nor a group with facts"
        facts += filter(None, [_read_text(item, problem)])
        return
    if not isinstance(given, list):
        raise BadRubricError(f"{where}.facts: not a list of texts")
    description = str(item.get("description") or "").strip()
    head = f"[Group {known_or(item.get('id'), place + 1)}{when(description, ': ')}{description}]"
    for number, fact in enumerate(given):
        if text := _read_text(fact, f"{where}.facts.{number}: not a text"):
            facts.append(f"{head} {text}")


def _read_text(item: Any, problem: str) -> str:
    """Return a fact's text. Raises `BadRubricError`."""
    text = item.get("description") if isinstance(item, dict) else item
    if not isinstance(text, str):
        raise BadRubricError(problem)
    return text.strip()
