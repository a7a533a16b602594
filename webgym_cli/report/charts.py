"""Charts as SVG strings. Pure; colours come from the page's style sheet.

Charts are 360 units wide, about the width of a phone screen, so that their text stays readable there.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain

from webgym_cli.util.optional import when
from webgym_cli.util.text import truncate

WIDTH, HEIGHT = 360, 230
# Margins around the plot.
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 12, 42
# Height of a row in a bar chart, and of its bar.
_ROW, _BAR = 38, 14
# Approximate number of ticks on an axis.
_TICKS = 5
# Points of a line that can be told apart at full size.
_APART = 40
# Maximum characters of a row label.
_NAME = 40
# Placeholder for an unknown value.
NONE = "-"

NumberFormat = Callable[[float], str]

# Characters that XML forbids, and bidirectional control characters.
_CONTROL = {code: "·" for code in (*range(32), 127, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """One point of a line."""

    x: float
    y: float
    low: float | None = None
    """Lower end of its interval."""
    high: float | None = None
    """Upper end of its interval."""
    tip: str = ""
    """Tooltip."""


@dataclass(frozen=True, slots=True)
class ChartSeries:
    """The points of one series, from left to right."""

    name: str
    marks: tuple[ChartPoint, ...]


def format_value(value: float | None, spec: str) -> str:
    """Format a number by a format specification; `NONE` for None."""
    return NONE if value is None else f"{value:{spec}}"


def format_percent(value: float | None) -> str:
    """Format a share as a percentage; a zero decimal is omitted. `NONE` for None."""
    return NONE if value is None else f"{100 * value:.1f}".removesuffix(".0") + " %"


def format_number(value: float | None) -> str:
    """Format a number with three significant digits and no trailing zeros; `NONE` for None."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def compute_ticks(low: float, high: float) -> list[float]:
    """Return evenly spaced round numbers that cover the range from `low` to `high`."""
    largest = max(abs(low), abs(high))
    span = max(high - low, largest * 1e-9) if high > low else largest
    if span <= sys.float_info.min * 1e9:  # the power of ten of a subnormal span would underflow
        span = 1.0
    power = 10.0 ** math.floor(math.log10(span / _TICKS))
    apart = next(power * factor for factor in (1, 2, 5, 10) if power * factor * _TICKS >= span * 0.999)
    first, last = math.floor(low / apart + 1e-9), math.ceil(max(high, low + span * 1e-9) / apart - 1e-9)
    return [float(f"{position * apart:.12g}") for position in range(first, max(last, first + 1) + 1)]


def draw_line_chart(title: str, axes: tuple[str, str], lines: Sequence[ChartSeries], *, share: bool = False) -> str:
    """Draw lines over policy versions with confidence bands; a series of one point has an error bar.

    `axes`: labels of x and y. `share`: y is a fraction of 1. The CSS classes of the lines are c0, c1, ... in order.
    """
    marks = list(chain.from_iterable(line.marks for line in lines))
    scale = _Scale.over(marks, share=share)
    show = format_percent if share else format_number
    parts = [_draw_frame(scale, axes, show)]
    for position, line in enumerate(lines):
        parts.append(f'<g class="c{position % 8}">{_draw_series(line, scale)}</g>')
    return _svg(title, HEIGHT, "".join(parts))


def draw_bar_chart(
    title: str, rows: Sequence[tuple[str, Mapping[str, float]]], kinds: Sequence[str], show: NumberFormat
) -> str:
    """Draw one stacked horizontal bar per row; a part's CSS class (c0, c1, ...) is its kind's position in `kinds`."""
    largest = max((sum(parts.values()) for _, parts in rows), default=0.0) or 1.0
    drawn = []
    for place, (name, parts) in enumerate(rows):
        top, at = place * _ROW, 0.0
        drawn.append(f'<text x="0" y="{top + 13}">{_text(truncate(name, _NAME))}</text>')
        drawn.append(f'<text class="end" x="{WIDTH}" y="{top + 13}">{_text(show(sum(parts.values())))}</text>')
        for kind, value in parts.items():
            length = value / largest * WIDTH
            tip = f"<title>{_text(f'{name}: {kind} {show(value)}')}</title>"
            drawn.append(
                f'<rect class="part c{kinds.index(kind) % 8}" x="{at:.1f}" y="{top + 18}" width="{length:.1f}" '
                f'height="{_BAR}">{tip}</rect>'
            )
            at += length
    return _svg(title, max(1, len(rows)) * _ROW, "".join(drawn))


def draw_swatch(position: int, *, line: bool) -> str:
    """Draw the legend swatch of a series."""
    shape = (
        '<line class="line" x1="0" y1="6" x2="24" y2="6"/>' if line else '<rect class="part" width="24" height="12"/>'
    )
    return f'<svg class="swatch c{position % 8}" viewBox="0 0 24 12" aria-hidden="true">{shape}</svg>'


@dataclass(frozen=True, slots=True)
class _Scale:
    """Mapping from data to SVG coordinates."""

    least: float
    """The policy version at the left end."""
    greatest: float
    """The policy version at the right end."""
    across: tuple[float, ...]
    """The marks on the x axis."""
    up: tuple[float, ...]
    """The marks on the y axis, from its lower end to its upper end."""

    @classmethod
    def over(cls, marks: Sequence[ChartPoint], *, share: bool) -> _Scale:
        """Return the scale that fits all points; its y range includes 0."""
        xs = [mark.x for mark in marks] or [0.0]
        ys = [value for mark in marks for value in (mark.y, mark.low, mark.high) if value is not None]
        least, greatest = min(xs), max(xs)
        across = tuple(
            tick for tick in compute_ticks(least, greatest) if tick == int(tick) and least <= tick <= greatest
        )
        up = compute_ticks(0.0, 1.0) if share else compute_ticks(min([0.0, *ys]), max([0.0, *ys]))
        return cls(least, greatest, across or (least,), tuple(up))

    def x(self, value: float) -> float:
        """Return the x coordinate of a policy version; a single version is centred."""
        room = WIDTH - _LEFT - _RIGHT
        wide = self.greatest - self.least
        return _LEFT + (room * (value - self.least) / wide if wide else room / 2)

    def y(self, value: float) -> float:
        """Return the y coordinate of a value."""
        low, high = self.up[0], self.up[-1]
        return HEIGHT - _BOTTOM - (value - low) / (high - low) * (HEIGHT - _TOP - _BOTTOM)


def _draw_frame(scale: _Scale, axes: tuple[str, str], show: NumberFormat) -> str:
    """Draw grid lines, tick labels and axis labels."""
    parts = []
    for tick in scale.up:
        y = scale.y(tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{WIDTH - _RIGHT}" y2="{y:.1f}"/>')
        parts.append(f'<text class="end" x="{_LEFT - 6}" y="{y + 4:.1f}">{_text(show(tick))}</text>')
    for tick in scale.across:
        parts.append(f'<text class="middle" x="{scale.x(tick):.1f}" y="{HEIGHT - _BOTTOM + 17}">{tick:.0f}</text>')
    across, up = axes
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    parts.append(f'<text class="middle" x="{(_LEFT + WIDTH - _RIGHT) / 2}" y="{HEIGHT - 6}">{_text(across)}</text>')
    parts.append(f'<text class="middle" transform="translate(10 {middle}) rotate(-90)">{_text(up)}</text>')
    return "".join(parts)


def _draw_series(line: ChartSeries, scale: _Scale) -> str:
    """Draw a line's confidence band, path and points."""
    ends = [(scale.x(mark.x), mark.low, mark.high) for mark in line.marks]
    known = [(x, scale.y(low), scale.y(high)) for x, low, high in ends if low is not None and high is not None]
    parts = []
    if len(known) > 1:
        around = [(x, high) for x, _, high in known] + [(x, low) for x, low, _ in reversed(known)]
        parts.append(f'<polygon class="band" points="{_points(around)}"/>')
    elif known:
        x, low, high = known[0]
        parts.append(f'<line class="whisker" x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}"/>')
    places = [(scale.x(mark.x), scale.y(mark.y)) for mark in line.marks]
    radius = 3.5 if len(places) <= _APART else 1.5
    parts.append(f'<polyline class="line" points="{_points(places)}"/>')
    for mark, (x, y) in zip(line.marks, places, strict=True):
        tip = when(mark.tip, f"<title>{_text(mark.tip)}</title>")
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">{tip}</circle>')
    return "".join(parts)


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _svg(title: str, height: float, content: str) -> str:
    return f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{_text(title)}">{content}</svg>'


def _text(words: str) -> str:
    """Return text escaped for XML."""
    # Names come from pages and models, so markup and bidirectional control characters are neutralised.
    return escape(words.translate(_CONTROL))
