"""Suggestions for unknown settings and runs, loaded where one is. Also imported in the train role (see `rl.py`)."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from itertools import chain
from pathlib import Path

from pydantic import BaseModel, ValidationError

from webgym_cli.config.section import keys_of
from webgym_cli.records.base import describe_problem
from webgym_cli.util.optional import when
from webgym_cli.util.text import and_more, name_first

# Maximum number of suggested runs.
_NAMED = 5


def suggest(key: str, keys: Collection[str]) -> tuple[str, str]:
    """Return the known key that an unknown one may mean, and the suffix that says so; each is empty if there is none.

    Settings of verl, AgentFly and WebGym get ours; for some of them the suffix names no single key.
    """
    # Only an unknown key needs the tables of other systems' names.
    from webgym_cli.config.foreign_names import answer_foreign

    near, words = answer_foreign(key, keys)
    if words:
        return near, words
    # The section may be wrong while the name is right.
    nearest = [known for known in keys if known.rsplit(".", 1)[-1] == key.rsplit(".", 1)[-1]]
    if len(nearest) != 1:
        nearest = difflib.get_close_matches(key, keys, n=1, cutoff=0.5)
    return (nearest[0], f"; did you mean {nearest[0]!r}?") if nearest else ("", "")


def explain(error: ValidationError, model: type[BaseModel]) -> tuple[str, str]:
    """Return the dotted key (empty: the whole) and message of the first error; unknown keys come first."""
    problems = error.errors()
    # An unknown key is often the cause of the other problems.
    first = next((problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0])
    key = ".".join(str(part) for part in first["loc"])
    words = describe_problem(first)
    if first["type"] == "extra_forbidden":
        words = f"unknown setting{suggest(key, keys_of(model))[1]}"
    return key, f"{words}{and_more(len(problems))}"


def name_runs_near(path: Path) -> str:
    """Return text that lists the runs near a path that is not a run, or in `runs`; empty if there are none."""
    folders = dict.fromkeys((path.parent, Path("runs")))
    names = [str(file.parent) for file in chain.from_iterable(sorted(folder.glob("*/run.json")) for folder in folders)]
    if near := difflib.get_close_matches(str(path), names, n=1):
        return f"; did you mean {near[0]}?"
    return when(names, f"; there are {name_first(names, _NAMED)}")
