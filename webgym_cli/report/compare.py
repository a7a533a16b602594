"""Two runs side by side: success by split and iteration, what can't be chance, failures, and how they were set up."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from webgym_cli.config.load import flatten
from webgym_cli.config.model import Settings
from webgym_cli.records.statistics import difference, mcnemar
from webgym_cli.report.facts import describe_run
from webgym_cli.report.success import SERIES, read_failures, read_points
from webgym_cli.store.index.query import Index
from webgym_cli.store.run import RunDir, saved_settings

LEVEL = 0.05
"""A p-value below it counts as telling; the intervals are those of 95 %."""
SOLVED = 0.5
"""A case of several scored attempts is solved when at least this share of them succeeded."""

_CASES = """
SELECT task_key, seed, avg(success::INTEGER) AS rate FROM trajectories
WHERE split = 'test' AND policy <> 'oracle' AND iteration = ? AND success IS NOT NULL
GROUP BY task_key, seed ORDER BY task_key, seed
"""
"""The scored cases of a test iteration: the same task with the same seed is the same case in every run."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs."""

    run: RunDir
    index: Index
    """The run's."""


def compare(first: Side, second: Side) -> dict[str, Any]:
    """Return the comparison as one JSON object. Rates and differences are shares of 1. Raises `StoreError`."""
    sides = (first, second)
    counted = [_points(side.index) for side in sides]
    settings = [saved_settings(side.run) for side in sides]
    kinds = [read_failures(side.index)["by_kind"] for side in sides]
    ran = [sum(point["trajectories"] for point in found.values()) for found in counted]
    return {
        "first": describe_run(first.run, settings[0]),
        "second": describe_run(second.run, settings[1]),
        "rows": [_row(sides, counted, series, at) for series in SERIES for at in _pairs_of_iterations(counted, series)],
        "failures": {
            kind: _two((kinds[0].get(kind, 0), ran[0]), (kinds[1].get(kind, 0), ran[1]))
            for kind in sorted({*kinds[0], *kinds[1]})
        },
        "settings": _differing(*settings),
    }


def _points(index: Index) -> dict[tuple[str, int], dict[str, Any]]:
    found = read_points(index)
    return {(point["series"], point["iteration"]): point for point in found if point["band"] is None}


def _pairs_of_iterations(counted: list[dict[tuple[str, int], Any]], series: str) -> list[tuple[int, int]]:
    """Return which iterations are compared: each with the same one, and last the newest with the newest."""
    there = [{iteration for name, iteration in found if name == series} for found in counted]
    pairs = [(iteration, iteration) for iteration in sorted(there[0] | there[1])]
    newest = tuple(max(found, default=-1) for found in there)
    if min(newest) >= 0 and newest[0] != newest[1]:
        pairs.append((newest[0], newest[1]))
    return pairs


def _row(sides: tuple[Side, Side], counted: list[Any], series: str, iterations: tuple[int, int]) -> dict[str, Any]:
    """Return how one iteration of the first run compares with one of the second.

    `method` is `paired` where both were asked the same test tasks with the same seeds, else `independent`, or None
    where a side has nothing that is scored.
    """
    found = [of_side.get((series, at)) for of_side, at in zip(counted, iterations, strict=True)]
    row: dict[str, Any] = {
        "series": series,
        "first_iteration": iterations[0],
        "second_iteration": iterations[1],
        "first": _told(found[0]),
        "second": _told(found[1]),
    }
    tallies = [(point["successes"], point["scored"]) for point in found if point and point["scored"]]
    if len(tallies) < 2:
        return {**row, "method": None}
    if series == "test" and (paired := _paired(sides, iterations)):
        return {**row, **paired}
    return {**row, "method": "independent", **_apart(tallies[0], tallies[1])}


def _told(point: dict[str, Any] | None) -> dict[str, Any] | None:
    names = ("trajectories", "scored", "successes", "success_rate", "interval", "failures", "mean_steps")
    return None if point is None else {name: point[name] for name in names}


def _paired(sides: tuple[Side, Side], iterations: tuple[int, int]) -> dict[str, Any] | None:
    """Return what the second side gained and lost on the cases of both, by McNemar's exact test; None without any."""
    pairs = gained = lost = 0
    for before, after in _both(
        *(_cases(side, at, n) for n, (side, at) in enumerate(zip(sides, iterations, strict=True)))
    ):
        pairs += 1
        gained += after and not before
        lost += before and not after
    if not pairs:
        return None
    p_value = mcnemar(gained, lost)
    return {
        "method": "paired",
        "pairs": pairs,
        "gained": gained,
        "lost": lost,
        "difference": round((gained - lost) / pairs, 4),
        "p_value": float(f"{p_value:.4g}"),
        "significant": p_value < LEVEL,
    }


_Case = tuple[str, int, int, bool]
"""The task's key, the seed, which side, and whether it was solved."""


def _cases(side: Side, iteration: int, number: int) -> Iterator[_Case]:
    for row in side.index.rows(_CASES, [iteration]):
        yield row["task_key"], row["seed"], number, row["rate"] >= SOLVED


def _both(first: Iterator[_Case], second: Iterator[_Case]) -> Iterator[tuple[bool, bool]]:
    """Yield whether each case of both sides was solved by the first and by the second. Both come in the same order."""
    for _, cases in groupby(heapq.merge(first, second), key=lambda case: case[:2]):
        solved = [case[3] for case in cases]
        if len(solved) == 2:
            yield solved[0], solved[1]


def _apart(first: tuple[int, int], second: tuple[int, int]) -> dict[str, Any]:
    """Return second minus first of two independent shares; each of at least one."""
    delta, low, high = difference(first, second)
    return {
        "difference": round(delta, 4),
        "difference_interval": [round(low, 4), round(high, 4)],
        "significant": not low <= 0 <= high,
    }


def _two(first: tuple[int, int], second: tuple[int, int]) -> dict[str, Any]:
    """Return two counts as shares of all trajectories, and their difference where both have any."""
    told = {"first": first[0], "second": second[0]}
    return {**told, **(_apart(first, second) if first[1] and second[1] else {})}


def _differing(first: Settings, second: Settings) -> dict[str, dict[str, Any]]:
    one, other = (flatten(settings.model_dump(mode="json")) for settings in (first, second))
    keys = dict.fromkeys([*one, *other])
    return {key: {"first": one.get(key), "second": other.get(key)} for key in keys if one.get(key) != other.get(key)}
