"""Figures of a report: a chart with the table of its numbers, every number as text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from webgym_cli.report.charts import (
    ChartPoint,
    ChartSeries,
    NumberFormat,
    draw_bar_chart,
    draw_line_chart,
    format_number,
    format_percent,
)

# The words at the axis of iterations.
VERSION = "policy version"
# Rows that a chart of bars has at most.
BARS = 20
# Stands where nothing is known.
NONE = "-"

# One row of the facts: a point of a curve.
Row = Mapping[str, Any]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Table:
    """A table in words."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart, and the table of its numbers."""

    title: str
    svg: str
    """Its markup, made by `charts`; empty: the table stands alone."""
    legend: tuple[str, ...]
    """The names of the series, in the order of their classes."""
    lines: bool
    """Whether the series are lines; else parts of bars."""
    table: Table
    note: str = ""


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A part of the page."""

    id: str
    title: str
    figures: tuple[Figure, ...]
    note: str = ""


def make_curve(
    title: str,
    y: str,
    groups: Mapping[str, Sequence[Item]],
    mark: Callable[[Item], ChartPoint],
    *,
    share: bool,
) -> Figure:
    """Return a figure with a line a group, whose points `mark` makes, and the table of all of them."""
    lines = [ChartSeries(name, tuple(mark(row) for row in rows)) for name, rows in groups.items()]
    show = format_percent if share else format_number
    rows = tuple(
        (line.name, f"{at.x:.0f}", show(at.y), format_interval((at.low, at.high), show), at.tip)
        for line in lines
        for at in line.marks
    )
    svg = draw_line_chart(title, (VERSION, y), lines, share=share)
    table = Table(("series", VERSION, y, "95 % interval", "of"), rows)
    if not any(at.low is not None for line in lines for at in line.marks):
        table = Table(("series", VERSION, y, "of"), tuple((*row[:3], row[4]) for row in rows))
    return Figure(title, svg, tuple(groups), True, table)


def make_bars(
    title: str, rows: Sequence[tuple[str, Mapping[str, float]]], kinds: Sequence[str], show: NumberFormat
) -> Figure:
    """Return a figure with a bar a row, of many the last, and the table of all; `kinds` names the parts."""
    kinds = [kind for kind in kinds if any(kind in parts for _, parts in rows)]
    rows_text = tuple(
        (name, *(show(parts[kind]) if kind in parts else NONE for kind in kinds), show(sum(parts.values())))
        for name, parts in rows
    )
    note = f"The newest {BARS} of {len(rows)}; the table has all." if len(rows) > BARS else ""
    svg = draw_bar_chart(title, rows[-BARS:], kinds, show)
    return Figure(title, svg, tuple(kinds), False, Table(("", *kinds, "all"), rows_text), note)


def group_rows(rows: Iterable[Row], key: str) -> dict[str, list[Row]]:
    """Return rows by the value of a key, in the order in which the values come."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(str(row[key]), []).append(row)
    return groups


def make_success_point(row: Row) -> ChartPoint:
    """Return the point of a success rate; the row must have scored trajectories."""
    low, high = row["interval"]
    tip = f"{row['successes']} of {row['scored']} solved"
    return ChartPoint(row["iteration"], row["success_rate"], low, high, tip)


def make_version_point(row: Row) -> ChartPoint:
    """Return the point of a figure of a policy version: the row has `version` and `y`."""
    return ChartPoint(row["version"], row["y"])


def format_interval(ends: Sequence[float | None] | None, show: NumberFormat) -> str:
    """Return an interval in words."""
    if ends is None or ends[0] is None or ends[1] is None:
        return NONE
    return f"{show(ends[0])} to {show(ends[1])}"
