"""How the scripted judge makes new tasks, and tells whether one can be done: plain rules over the question's text.

A new task is a given one with every number a little higher and, in place of each quoted name, that of the next given
task that has one; where neither is there, a round of words that ask for it otherwise. So it is of use for tests and
demonstrations, and only as varied as what it is given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# How a task without numbers and names is put anew.
OTHERWISE = ("Please see to this: {}", "I would like this done: {}", "Do this for me on this site: {}")
# What no site offers, by these rules.
IMPOSSIBLE = re.compile(r"weather|traffic|e-?mail the order|phone|book a flight|another website", re.IGNORECASE)

_NUMBER = re.compile(r"\d+")
_QUOTED = re.compile(r"\"[^\"]+\"")


def new_tasks(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a request for new tasks: the first one is a given task said again, as models do it."""
    given, count = list(data["tasks"]), int(data["count"])
    names = [name for task in given for name in _QUOTED.findall(task)]
    made = [_vary(given[number % len(given)], names, number // len(given) + 1) for number in range(count - 1)]
    return {"tasks": [given[0], *made]}


def feasible(data: Mapping[str, Any]) -> bool:
    """Tell whether a task can be done."""
    return not IMPOSSIBLE.search(data["task"])


def _vary(task: str, names: list[str], step: int) -> str:
    """Return a task with other numbers and names; `step` counts how often it is made anew, from 1."""
    other = _NUMBER.sub(lambda found: str(int(found[0]) + step), task)
    other = _QUOTED.sub(lambda found: names[(names.index(found[0]) + step) % len(names)], other)
    return other if other != task else OTHERWISE[(step - 1) % len(OTHERWISE)].format(task)
