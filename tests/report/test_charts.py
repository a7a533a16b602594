"""Charts are well-formed SVG whose points lie where the numbers are."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import each
from webgym_cli.report.charts import (
    HEIGHT,
    WIDTH,
    ChartPoint,
    ChartSeries,
    compute_ticks,
    draw_bar_chart,
    draw_line_chart,
    draw_swatch,
    format_number,
    format_percent,
)

AXES = ("policy version", "success")


def drawn(*marks, share=True, name="test"):
    return ElementTree.fromstring(draw_line_chart("Success", AXES, [ChartSeries(name, marks)], share=share))


def words(picture):
    return [element.text for element in picture.iter("text")]


def centres(picture):
    return [(float(dot.get("cx")), float(dot.get("cy"))) for dot in picture.iter("circle")]


@each(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 3, [0, 1, 2, 3]),
        (0, 0, [0, 0.2]),
        (0, 0.031, [0, 0.01, 0.02, 0.03, 0.04]),
        (-2, 7, [-2, 0, 2, 4, 6, 8]),
        (3, 1003, [0, 200, 400, 600, 800, 1000, 1200]),
    ],
)
def test_ticks_are_round(low, high, expected):
    assert compute_ticks(low, high) == pytest.approx(expected)


@given(st.floats(-1e9, 1e9), st.floats(0, 1e9))
def test_ticks_hold_what_is_between_them_and_are_few(low, span):
    ticks = compute_ticks(low, low + span)
    room = (ticks[1] - ticks[0]) * 1e-6
    assert 2 <= len(ticks) <= 9 and ticks[0] <= low + room
    assert ticks[-1] >= low + span - room


@pytest.mark.parametrize(("value", "text"), [(0.5, "50 %"), (0.0833, "8.3 %"), (1, "100 %"), (-0.0241, "-2.4 %")])
def test_shares_in_words(value, text):
    assert format_percent(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.123456, "0.123"), (12, "12"), (1234567, "1,234,567"), (0, "0")])
def test_numbers_in_words(value, text):
    assert format_number(value) == text


def test_points_lie_where_the_numbers_are():
    picture = drawn(ChartPoint(0, 0.0), ChartPoint(1, 0.5), ChartPoint(3, 1.0))
    (left, bottom), (x, middle), (right, top) = centres(picture)
    assert (x - left) / (right - left) == pytest.approx(1 / 3, abs=0.01)
    assert middle == pytest.approx((top + bottom) / 2, abs=0.1)
    assert 0 < left < right < WIDTH
    assert 0 < top < bottom < HEIGHT
    assert [text for text in words(picture) if text in AXES] == ["policy version", "success"]
    assert {"0 %", "100 %", "0", "3"} <= set(words(picture))


def test_the_band_is_around_the_line_and_a_lone_point_has_a_whisker():
    band = drawn(ChartPoint(0, 0.5, 0.25, 0.75), ChartPoint(1, 0.5, 0.25, 0.75)).find(".//polygon").get("points")
    ys = [float(place.split(",")[1]) for place in band.split()]
    assert ys[0] == ys[1] < ys[2] == ys[3]
    lone = drawn(ChartPoint(4, 0.5, 0.25, 0.75))
    assert lone.find(".//polygon") is None
    whisker = lone.find(".//line[@class='whisker']")
    assert float(whisker.get("y2")) < centres(lone)[0][1] < float(whisker.get("y1"))


def test_losses_below_zero_stay_on_the_paper():
    assert all(0 <= y <= HEIGHT for _, y in centres(drawn(ChartPoint(1, -3.5), ChartPoint(2, 40.0), share=False)))


def test_a_chart_without_points_is_an_empty_frame():
    assert centres(drawn()) == []


def test_names_from_outside_are_text():
    hostile = "</svg><script>\x00\x1b\u202e\"'&"
    picture = drawn(ChartPoint(0, 1, tip=hostile))
    assert [tip.text for tip in picture.iter("title")] == ["</svg><script>···\"'&"]
    bars = ElementTree.fromstring(draw_bar_chart(hostile, [(hostile, {"kind": 1.0})], ["kind"], format_number))
    assert [element.tag for element in bars.iter()] == ["svg", "text", "text", "rect", "title"]


def test_parts_of_a_bar_lie_side_by_side_and_have_their_kinds_colour():
    rows = [("a", {"x": 1.0, "y": 3.0}), ("b", {"y": 2.0})]
    picture = ElementTree.fromstring(draw_bar_chart("bars", rows, ["x", "y"], format_number))
    parts = [(r.get("class"), float(r.get("x")), float(r.get("width"))) for r in picture.iter("rect")]
    assert parts == [("part c0", 0, 90), ("part c1", 90, 270), ("part c1", 0, 180)]
    assert [tip.text for tip in picture.iter("title")] == ["a: x 1", "a: y 3", "b: y 2"]


def test_a_swatch_has_the_colour_of_its_series():
    classes = [ElementTree.fromstring(draw_swatch(n, line=True)).get("class") for n in (0, 9)]
    assert classes == ["swatch c0", "swatch c1"]
