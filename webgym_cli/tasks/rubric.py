"""Parser of WebGym's rubrics (a text, or a list of texts, described facts or fact groups): one text per fact."""

from __future__ import annotations

from typing import Any

from webgym_cli.util.json_values import as_list
from webgym_cli.util.optional import known_or, when


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
            _take(item, place, f".{place}", facts)
    else:
        _take(value, 0, "", facts)
    return tuple(facts)


def has_unknown_fields(value: Any) -> bool:
    """Whether a rubric has fields beyond its facts' texts, so that the original should be kept."""
    return any(isinstance(item, dict) for item in as_list(value))


def _take(item: Any, place: int, where: str, facts: list[str]) -> None:
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
    text = item.get("description") if isinstance(item, dict) else item
    if not isinstance(text, str):
        raise BadRubricError(problem)
    return text.strip()
