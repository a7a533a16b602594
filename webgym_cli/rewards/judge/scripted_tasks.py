"""How the scripted judge makes new tasks, and tells whether one can be done: plain rules over the question's text.

A new task is a given one with every number a little higher and, in place of each quoted name, one that some given task
has at the same place: `show "Desk" by "Price"` and `show "Garden" by "Name"` give `show "Desk" by "Name"`. A name that
the start page shows gives way to any other that the page shows. Now and then a task is put in other words. So it is of
use for tests and demonstrations, and only as varied as what it is given. The same question has the same answer.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

# Words around a task.
BEFORE = (
    "",
    "Please see to this: ",
    "I would like this done: ",
    "Do this for me: ",
    "Could you do this: ",
    "My request: ",
)
AFTER = ("", ", please", ", thank you", ", right now", ", as soon as you can")
# What no site offers, by these rules.
IMPOSSIBLE = re.compile(r"weather|traffic|e-?mail the order|phone|book a flight|another website", re.IGNORECASE)

# The share of new tasks that have words around them, too.
_REPHRASED = 0.5
# Attempts at a variant that was not made yet, for each task that is asked for.
_ATTEMPTS = 20
_NUMBER = re.compile(r"\d+")
_QUOTED = re.compile(r"\"[^\"]+\"")


def new_tasks(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a request for new tasks.

    The first one is a given task said again, as models do it. The others differ from it and from each other, as far as
    there are so many variants.
    """
    given, count = [_strip(task) for task in data["tasks"]], int(data["count"])
    names = _list_columns([_QUOTED.findall(task) for task in given], [f'"{name}"' for name in data.get("page", ())])
    draw = random.Random(json.dumps(given))
    variants = {data["tasks"][0]: None}
    for attempt in range(count * _ATTEMPTS):
        if len(variants) == count:
            break
        variants.setdefault(_vary(given[attempt % len(given)], names, attempt // len(given) + 1, draw))
    return {"tasks": list(variants)}


def _strip(task: str) -> str:
    """Return a task without the words that a generation before put around it."""
    for before, after in zip_longest(BEFORE, AFTER, fillvalue=""):
        task = task.removeprefix(before).removesuffix(after)
    return task


def _list_columns(rows: Sequence[Sequence[str]], page: Sequence[str]) -> list[list[str]]:
    """Return what stands at the first, second, ... place of each row that has so many.

    Where that is the name of something on the page, all names of the page may stand there.
    """
    columns = [[row[at] for row in rows if at < len(row)] for at in range(max(map(len, rows), default=0))]
    return [list(page) if set(column) & set(page) else column for column in columns]


def feasible(data: Mapping[str, Any]) -> bool:
    """Tell whether a task can be done."""
    return not IMPOSSIBLE.search(data["task"])


def _vary(task: str, names: Sequence[Sequence[str]], step: int, draw: random.Random) -> str:
    """Return a task with other numbers and names; `step` counts how often it is made anew, from 1."""
    places = iter(names)
    other = _NUMBER.sub(lambda match: str(int(match[0]) + step), task)
    other = _QUOTED.sub(lambda _: draw.choice(next(places)), other)
    if other != task and draw.random() >= _REPHRASED:
        return other
    return f"{draw.choice(BEFORE)}{other}{draw.choice(AFTER)}"
