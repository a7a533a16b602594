"""Figures of a report: a chart and the table of its data as text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from webgym_cli.report.charts import (
    NONE,
    ChartPoint,
    ChartSeries,
    NumberFormat,
    draw_bar_chart,
    draw_line_chart,
    format_number,
    format_percent,
)
from webgym_cli.util.optional import group_by, known_or, when

# Label of the iteration axis.
VERSION = "policy version"
# Maximum rows of a bar chart.
BARS = 20

# One row of the facts, which is one point of a curve.
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart and the table of its data, whose cells are texts."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    svg: str = ""
    """Its markup, made by `charts`; empty: the table is the whole figure."""
    legend: tuple[str, ...] = ()
    """The names of the series, in the order of their classes."""
    lines: bool = False
    """Whether the series are lines; else parts of bars."""


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A section of the page."""

    id: str
    title: str
    figures: tuple[Figure, ...]
    note: str = ""


def build_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], note: str = "") -> Figure:
    """Return a table as a figure; None is an empty cell."""
    cells = (tuple(str(known_or(cell, "")) for cell in row) for row in rows)
    return Figure(title, tuple(columns), tuple(cells), note)


def make_curve(
    title: str,
    axis: str,
    groups: Mapping[str, Sequence[Row]],
    y: str,
    of: str = "",
    *,
    x: str = "iteration",
    share: bool = False,
) -> Figure:
    """Return a figure with one line per group over the rows' `x`, and the table of all points.

    `y`: the key of the value. `of`: a format string with keys that describes what the value was computed from.
    """
    across = VERSION if x == "iteration" else x.replace("_", " ")
    lines = [ChartSeries(name, tuple(_make_point(row, x, y, of) for row in rows)) for name, rows in groups.items()]
    show = format_percent if share else format_number
    rows: tuple[tuple[str, ...], ...] = tuple(
        (line.name, f"{at.x:.0f}", show(at.y), format_interval((at.low, at.high), show), at.tip)
        for line in lines
        for at in line.marks
    )
    svg = draw_line_chart(title, (across, axis), lines, share=share)
    columns: tuple[str, ...] = ("series", across, axis, "95 % interval", "of")
    if not any(at.low is not None for at in chain.from_iterable(line.marks for line in lines)):
        columns, rows = ("series", across, axis, "of"), tuple((*row[:3], row[4]) for row in rows)
    return Figure(title, columns, rows, svg=svg, legend=tuple(groups), lines=True)


def make_success_curve(title: str, groups: Mapping[str, Sequence[Row]]) -> Figure:
    """Return a figure of success rates with confidence intervals; every row has scored trajectories."""
    return make_curve(
        title, "success", groups, "success_rate", "{solved_cases:.10g} of {scored_cases} solved", share=True
    )


def _make_point(row: Row, x: str, y: str, of: str) -> ChartPoint:
    low, high = row["interval"] if y == "success_rate" else (None, None)
    return ChartPoint(row[x], row[y], low, high, of.format(**row))


def make_bars(
    title: str, rows: Sequence[tuple[str, Mapping[str, float]]], kinds: Sequence[str], show: NumberFormat
) -> Figure:
    """Return a figure with one bar per row (the last `BARS`) and a table of all rows; `kinds` names the parts."""
    kinds = [kind for kind in kinds if any(kind in parts for _, parts in rows)]
    rows_text = tuple(
        (name, *(show(parts[kind]) if kind in parts else NONE for kind in kinds), show(sum(parts.values())))
        for name, parts in rows
    )
    note = when(len(rows) > BARS, f"The newest {BARS} of {len(rows)}; the table has all.")
    svg = draw_bar_chart(title, rows[-BARS:], kinds, show)
    return Figure(title, ("", *kinds, "all"), rows_text, note, svg, tuple(kinds))


def group_rows(rows: Iterable[Row], key: str) -> dict[str, list[Row]]:
    """Group rows by the value of a key, in order of first occurrence."""
    return group_by(rows, lambda row: str(row[key]))


def format_interval(ends: Sequence[float | None] | None, show: NumberFormat) -> str:
    """Format an interval as text."""
    if ends is None or ends[0] is None or ends[1] is None:
        return NONE
    return f"{show(ends[0])} to {show(ends[1])}"
