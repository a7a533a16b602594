"""Answers, right and wrong ones, to those of webarena-verified's tasks whose answer `string_match` can state."""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from webgym_cli.records.webarena import OR, Expected

Value = str | int | float | bool
DATES = ("%m/%d/%Y", "%B %d, %Y", "%B %d %Y", "%b %d %Y")


@dataclass(frozen=True)
class Asked:
    """What a task of theirs asks for."""

    id: int
    kind: str
    """As what they compare the values: string, number, boolean, currency, date, duration, ..."""
    wanted: tuple[tuple[Value, ...], ...]
    """What has to be found; each value in one or more forms."""

    @property
    def values(self) -> list[Value]:
        """The first form of each."""
        return [forms[0] for forms in self.wanted]

    @property
    def exactly(self) -> Expected | None:
        """Our exact rule; None where there are several values, or several forms of one."""
        only = self.wanted[0] if len(self.wanted) == 1 else ()
        return Expected(exact_match=text(only[0])) if len(only) == 1 else None

    @property
    def included(self) -> Expected:
        """Our rule that asks for each value."""
        return Expected(must_include=[f" {OR} ".join(map(text, forms)) for forms in self.wanted])


def text(value: Value) -> str:
    """Return a value as a person writes it."""
    if isinstance(value, bool):
        return "Yes" if value else "No"
    return str(value)


def format_values(values: Sequence[Value]) -> str:
    """Return values as the answer that an agent of ours gives."""
    return ", ".join(map(text, values))


def all_asked(tasks: list[dict[str, Any]]) -> list[Asked]:
    """Return what those tasks ask for that ask for texts, numbers or yes and no, and for no request to be sent.

    Records have no counterpart in our rules, and neither have patterns.
    """
    return [result for task in tasks if (result := parse_task(task))]


def parse_task(task: dict[str, Any]) -> Asked | None:
    rule, *requests = task["eval"]
    expected, items = rule["expected"], rule["results_schema"].get("items", {})
    if requests or (expected["task_type"], expected["status"]) != ("retrieve", "SUCCESS"):
        return None
    wanted = tuple(tuple(one) if isinstance(one, list) else (one,) for one in expected["retrieved_data"])
    if any(isinstance(form, dict) or str(form).startswith("^") for forms in wanted for form in forms):
        return None
    return Asked(task["task_id"], items.get("format") or items["type"], wanted)


def answers(tasks: list[Asked]) -> Iterator[tuple[str, Asked, list[Value]]]:
    """Yield the name of a way to answer, the task and the values, where the task can be answered in that way."""
    for at, task in enumerate(tasks):
        for name, answer in WAYS.items():
            if values := answer(task):
                yield name, task, values
        others = [other for other in tasks[at + 1 :] + tasks[:at] if other.kind == task.kind]
        others = [other for other in others if not set(_folded(other)) & set(_folded(task))]
        yield "one more", task, [*task.values, others[0].values[0]]
        for other in others:
            yield "another's", task, other.values


def _folded(task: Asked) -> list[str]:
    return [text(form).casefold() for forms in task.wanted for form in forms]


def _each(write: Callable[[str], str]) -> Callable[[Asked], list[Value]]:
    return lambda task: [write(text(value)) for value in task.values]


def _last_form(task: Asked) -> list[Value]:
    return [forms[-1] for forms in task.wanted] if any(len(forms) > 1 for forms in task.wanted) else []


def _other_form(task: Asked) -> list[Value]:
    return [write(value) for value in task.values] if (write := FORMS.get(task.kind)) else []


def _plain(task: Asked) -> list[Value]:
    """Write without accents and signs; nothing for what has none."""
    letters = [unicodedata.normalize("NFD", text(value)).encode("ascii", "ignore").decode() for value in task.values]
    return [] if letters == list(map(text, task.values)) else [*letters]


def _date(value: Value) -> str:
    for form in DATES:
        try:
            return datetime.strptime(text(value), form).date().isoformat()
        except ValueError:
            continue
    raise AssertionError(f"{value!r} is no date")


FORMS: dict[str, Callable[[Any], str]] = {
    "number": lambda value: f"{value:,}.0",
    "currency": lambda value: f"${value:,.2f}",
    "boolean": lambda value: str(value).lower(),
    "date": _date,
    "duration": lambda value: value.replace("min", " minutes").replace("h ", " hours "),
    "distance": lambda value: value.replace("km", " kilometers") if "km" in value else value.replace("m", " meters"),
}
"""Another form of a value by its kind."""

WAYS: dict[str, Callable[[Asked], list[Value]]] = {
    "as it is": lambda task: task.values,
    "capitals": _each(str.upper),
    "quotes": _each(lambda value: f'"{value}"'),
    "full stop": _each(lambda value: f"{value}."),
    "sentence": _each(lambda value: f"It is {value} as far as I see."),
    "last form": _last_form,
    "other order": lambda task: task.values[::-1] if len(task.values) > 1 else [],
    "no accents": _plain,
    "other form": _other_form,
    "one less": lambda task: task.values[:-1],
    "longer": _each(lambda value: f"{value}7"),
}
"""Gives the values that answer a task in some way; none where it can't be answered so."""
