"""How the scripted judge makes new tasks, and tells whether one can be done: plain rules over the question's text.

A new task is a given one with every number a little higher and, in place of each quoted name, one that some given task
has at the same place: `show "Desk" by "Price"` and `show "Garden" by "Name"` give `show "Desk" by "Name"`; now and then
it is put in other words. So it is of use for tests and demonstrations, and only as varied as what it is given. The same
question has the same answer.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

# How a task without numbers and names is put anew.
OTHERWISE = ("Please see to this: {}", "I would like this done: {}", "Do this for me on this site: {}")
# What no site offers, by these rules.
IMPOSSIBLE = re.compile(r"weather|traffic|e-?mail the order|phone|book a flight|another website", re.IGNORECASE)

# The share of new tasks that are put in other words, too.
_REPHRASED = 0.5
_NUMBER = re.compile(r"\d+")
_QUOTED = re.compile(r"\"[^\"]+\"")


def new_tasks(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a request for new tasks: the first one is a given task said again, as models do it."""
    given, count = list(data["tasks"]), int(data["count"])
    names = _list_columns([_QUOTED.findall(task) for task in given])
    draw = random.Random(json.dumps(given))
    varied = [_vary(given[number % len(given)], names, number // len(given) + 1, draw) for number in range(count - 1)]
    return {"tasks": [given[0], *varied]}


def _list_columns(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return what stands at the first, second, ... place of each row that has so many."""
    return [[row[at] for row in rows if at < len(row)] for at in range(max(map(len, rows), default=0))]


def feasible(data: Mapping[str, Any]) -> bool:
    """Tell whether a task can be done."""
    return not IMPOSSIBLE.search(data["task"])


def _vary(task: str, names: Sequence[Sequence[str]], step: int, draw: random.Random) -> str:
    """Return a task with other numbers and names; `step` counts how often it is made anew, from 1."""
    places = iter(names)
    other = _NUMBER.sub(lambda match: str(int(match[0]) + step), task)
    other = _QUOTED.sub(lambda match: draw.choice(next(places)), other)
    return draw.choice(OTHERWISE).format(other) if other == task or draw.random() < _REPHRASED else other
