"""Comparison of two runs: success by split and iteration with significance tests, failures, differing settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypedDict, cast

from webgym_cli.config.load import flat_values
from webgym_cli.records.statistics import difference
from webgym_cli.report.facts import RunIdentity, describe_run
from webgym_cli.report.success import SERIES, SuccessCounts, SuccessPoint, read_failures, read_points
from webgym_cli.store.index.paired import Change, Pair, compute_p_value, count_changes, pair_cases
from webgym_cli.store.index.query import Index
from webgym_cli.store.run import RunDir, saved_settings

# Significance level; the intervals are 95 % confidence intervals.
LEVEL = 0.05


class Difference(TypedDict, total=False):
    """Difference of two shares (second minus first); empty if a side has no data."""

    difference: float
    difference_interval: list[float]
    """Newcombe, 95 %; of independent shares."""
    significant: bool
    pairs: int
    """Of paired shares, like those below."""
    gained: int
    lost: int
    p_value: float
    """McNemar's, exact."""


class ComparedRow(Difference):
    """Comparison of an iteration of the first run with one of the second."""

    series: str
    """`A / B` where two servers are compared."""
    first_iteration: int
    second_iteration: int
    first: SuccessCounts | None
    second: SuccessCounts | None
    method: Literal["paired", "independent"] | None
    """`paired`: both were asked the same test tasks with the same seeds. None: a side has nothing that is scored."""
    common_tasks: int | None
    """Scored tasks of both sides; 0: the success rates are those of different tasks. None: without a method."""


class Comparison(TypedDict):
    """Comparison of two runs: the input of the HTML page, and the output of `--json`."""

    first: RunIdentity
    second: RunIdentity
    rows: list[ComparedRow]
    failures: dict[str, dict[str, Any]]
    """By kind: both counts, and the difference of the shares of all trajectories."""
    settings: dict[str, dict[str, Any]]
    """Those that differ, by dotted key."""


# A run and its index.
ComparedRun = tuple[RunDir, Index]
_Points = dict[tuple[str, int], SuccessPoint]
# The series of both sides.
_Series = tuple[str, str]


def compare_runs(first: ComparedRun, second: ComparedRun) -> Comparison:
    """Return the comparison as one JSON object. Rates and differences are shares of 1. Raises `StoreError`."""
    runs, indexes = (first[0], second[0]), (first[1], second[1])
    counted = [_points(index) for index in indexes]
    settings = [saved_settings(run) for run in runs]
    values = [flat_values(of) for of in settings]
    kinds = [read_failures(index)["by_kind"] for index in indexes]
    ran = [sum(point["trajectories"] for point in points.values()) for points in counted]
    return {
        "first": describe_run(runs[0], settings[0]),
        "second": describe_run(runs[1], settings[1]),
        "rows": [
            _row(indexes, counted, series, at)
            for series in _pairs_of_series(counted)
            for at in _pairs_of_iterations(counted, series)
        ],
        "failures": {
            kind: _two((kinds[0].get(kind, 0), ran[0]), (kinds[1].get(kind, 0), ran[1]))
            for kind in sorted({*kinds[0], *kinds[1]})
        },
        "settings": {
            key: {"first": values[0].get(key), "second": values[1].get(key)}
            for key in dict.fromkeys([*values[0], *values[1]])
            if values[0].get(key) != values[1].get(key)
        },
    }


def _points(index: Index) -> _Points:
    points = read_points(index)
    return {(point["series"], point["iteration"]): point for point in points if point["band"] is None}


def _pairs_of_series(counted: list[_Points]) -> Iterator[_Series]:
    """Yield the pairs of series to compare: equal names, then the only other server of each run, split by split."""
    first, second = ({name for name, _ in points} for points in counted)
    yield from ((name, name) for name in SERIES)
    yield from ((name, name) for name in sorted((first & second).difference(SERIES)))
    for split in SERIES[:2]:
        # Two models on servers of their own, each in its run, are compared although their names differ.
        alone = [
            sorted(name for name in names if name.startswith(f"{split} of "))
            for names in (first - second, second - first)
        ]
        if [len(names) for names in alone] == [1, 1]:
            yield alone[0][0], alone[1][0]
        else:
            yield from ((name, name) for names in alone for name in names)


def _pairs_of_iterations(counted: list[_Points], series: _Series) -> list[tuple[int, int]]:
    """Return the pairs of iterations to compare: equal numbers, then the newest of each run."""
    there = [{at for name, at in points if name == mine} for points, mine in zip(counted, series, strict=True)]
    pairs = [(iteration, iteration) for iteration in sorted(there[0] | there[1])]
    newest = tuple(max(iterations, default=-1) for iterations in there)
    # For runs of different lengths the comparison of the final policies is the most useful one.
    if min(newest) >= 0 and newest[0] != newest[1]:
        pairs.append((newest[0], newest[1]))
    return pairs


def _row(indexes: Sequence[Index], counted: list[_Points], series: _Series, iterations: tuple[int, int]) -> ComparedRow:
    """Compare one iteration of the first run with one of the second."""
    points = [of_side.get(at) for of_side, at in zip(counted, zip(series, iterations, strict=True), strict=True)]
    row: ComparedRow = {
        "series": " / ".join(dict.fromkeys(series)),
        "first_iteration": iterations[0],
        "second_iteration": iterations[1],
        "first": _summarize_point(points[0]),
        "second": _summarize_point(points[1]),
        "method": None,
        "common_tasks": None,
    }
    tallies = [(point["successes"], point["scored"]) for point in points if point and point["scored"]]
    # Without scored trajectories on both sides there is no rate to test: the row has counts only.
    if len(tallies) < 2:
        return row
    before, after = ((index, *of) for index, of in zip(indexes, zip(series, iterations, strict=True), strict=True))
    row["common_tasks"] = len(pair_cases(before, after, by_seed=False))
    if series[0].startswith("test") and (paired := _compare_pairs(pair_cases(before, after))):
        return {**row, "method": "paired", **paired}
    return {**row, "method": "independent", **_apart(tallies[0], tallies[1])}


def _summarize_point(point: SuccessPoint | None) -> SuccessCounts | None:
    kept = point and {name: value for name, value in point.items() if name in SuccessCounts.__annotations__}
    return cast("SuccessCounts | None", kept)


def _compare_pairs(shared: Sequence[Pair]) -> Difference | None:
    """Compare shared cases by McNemar's exact test; None without shared cases."""
    counts = count_changes(shared)
    if not (pairs := len(shared)):
        return None
    gained, lost, p_value = counts[Change.GAINED], counts[Change.LOST], compute_p_value(counts)
    return {
        "pairs": pairs,
        "gained": gained,
        "lost": lost,
        "difference": round((gained - lost) / pairs, 4),
        "p_value": p_value,
        "significant": p_value < LEVEL,
    }


def _apart(first: tuple[int, int], second: tuple[int, int]) -> Difference:
    """Return the difference of two independent proportions (second minus first); both totals are at least 1."""
    delta, low, high = difference(first, second)
    return {
        "difference": round(delta, 4),
        "difference_interval": [round(low, 4), round(high, 4)],
        "significant": not low <= 0 <= high,
    }


def _two(first: tuple[int, int], second: tuple[int, int]) -> dict[str, Any]:
    """Return two counts as shares of all trajectories, and their difference if both runs have trajectories."""
    apart = _apart(first, second) if first[1] and second[1] else {}
    return {"first": first[0], "second": second[0], **apart}
