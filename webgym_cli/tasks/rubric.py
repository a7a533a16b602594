"""WebGym's rubrics: a text, a list of texts, of described facts, or of groups of facts, made into one text a fact."""

from __future__ import annotations

from typing import Any

# The names of the shapes, as `rubric_shape` gives them.
SHAPES = ("none", "text", "texts", "facts", "groups", "mixed")


class BadRubricError(ValueError):
    """A rubric of no known shape. The message begins with the place: `: ...` or `.3.facts: ...`, counted from 0."""


def list_facts(value: Any, *, verbatim: bool = False) -> tuple[str, ...]:
    """Return the facts of a rubric, one text each, blank ones left out. Raises `BadRubricError`.

    `verbatim`: a list of texts stays as it is, as in our own files.
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


def rubric_shape(value: Any) -> str:
    """Return the name of a rubric's shape, one of `SHAPES`: `none` for null, an empty text and an empty list."""
    if isinstance(value, str):
        return "text" if value.strip() else "none"
    items = value if isinstance(value, list) else [value] if value else []
    shapes = {("groups" if "facts" in item else "facts") if isinstance(item, dict) else "texts" for item in items}
    return "none" if not shapes else shapes.pop() if len(shapes) == 1 else "mixed"


def has_unknown_fields(value: Any) -> bool:
    """Tell whether a rubric holds more than the texts of its facts, so that the original is worth keeping."""
    return rubric_shape(value) in ("facts", "groups", "mixed")


def _take(item: Any, place: int, where: str, facts: list[str]) -> None:
    if isinstance(item, dict) and item.get("facts") is not None:
        _take_group(item, place, where, facts)
        return
    text = item.get("description") if isinstance(item, dict) else item
    if not isinstance(text, str):
        raise BadRubricError(f"{where}: neither a text, nor a fact with a description, nor a group with facts")
    if text := text.strip():
        facts.append(text)


def _take_group(group: dict[str, Any], place: int, where: str, facts: list[str]) -> None:
    """Take `[Group id: description] fact`; a group without an id has its number, counted from 1."""
    given, name = group["facts"], group.get("id")
    if not isinstance(given, list):
        raise BadRubricError(f"{where}.facts: not a list of texts")
    description = str(group.get("description") or "").strip()
    head = f"[Group {place + 1 if name is None else name}{': ' if description else ''}{description}]"
    for number, fact in enumerate(given):
        text = fact.get("description") if isinstance(fact, dict) else fact
        if not isinstance(text, str):
            raise BadRubricError(f"{where}.facts.{number}: not a text")
        if text := text.strip():
            facts.append(f"{head} {text}")
