"""Task generation and feasibility checks of the scripted judge, by deterministic rules over the question's text.

A new task is a given one with every number increased a little, and every quoted name replaced by one that another given
task has at the same position: `show "Desk" by "Price"` and `show "Garden" by "Name"` give `show "Desk" by "Name"`. A
name on the start page is replaced by any other name on that page. Some tasks are rephrased. The results vary only as
much as the given tasks; the same question always has the same answer.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from itertools import islice, product, zip_longest
from typing import Any

# Phrases around a task.
BEFORE = (
    "",
    "Please see to this: ",
    "I would like this done: ",
    "Do this for me: ",
    "Could you do this: ",
    "My request: ",
)
AFTER = ("", ", please", ", thank you", ", right now", ", as soon as you can")
# Topics that no site offers, by these rules.
IMPOSSIBLE = re.compile(r"weather|traffic|e-?mail the order|phone|book a flight|another website", re.IGNORECASE)

# Share of new tasks that are also rephrased.
_REPHRASED = 0.5
# Maximum attempts per requested task to make a new variant.
_ATTEMPTS = 20
_NUMBER = re.compile(r"\d+")
_QUOTED = re.compile(r"\"[^\"]+\"")


def new_tasks(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a generation request.

    The first task repeats a given one, as models do. The others differ from it and from each other as far as possible.
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


def rephrase(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a request for paraphrases: the task between phrases."""
    around = islice(product(BEFORE[1:], AFTER), int(data["count"]))
    return {"tasks": [f"{before}{data['task']}{after}" for before, after in around]}


def _strip(task: str) -> str:
    """Return a task without the phrases added by an earlier generation."""
    for before, after in zip_longest(BEFORE, AFTER, fillvalue=""):
        task = task.removeprefix(before).removesuffix(after)
    return task


def _list_columns(rows: Sequence[Sequence[str]], page: Sequence[str]) -> list[list[str]]:
    """Return the names at the first, second, ... position over all rows.

    If one of them is on the page, all names of the page are possible at that position.
    """
    columns = [[row[at] for row in rows if at < len(row)] for at in range(max(map(len, rows), default=0))]
    return [list(page) if set(column) & set(page) else column for column in columns]


def feasible(data: Mapping[str, Any]) -> bool:
    """Whether a task is feasible."""
    return not IMPOSSIBLE.search(data["task"])


def _vary(task: str, names: Sequence[Sequence[str]], step: int, draw: random.Random) -> str:
    """Return a task with other numbers and names; `step` is the number of the variant, from 1."""
    places = iter(names)
    other = _NUMBER.sub(lambda match: str(int(match[0]) + step), task)
    other = _QUOTED.sub(lambda _: draw.choice(next(places)), other)
    if other != task and draw.random() >= _REPHRASED:
        return other
    return f"{draw.choice(BEFORE)}{other}{draw.choice(AFTER)}"
