"""Where an action pointed, in pixels of its screenshot."""

import pytest

from tests.records.made import shot, step
from webgym_cli.inspect.action_markers import Mark, mark_of, target_of
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.trajectory import Element, Observation, ParseErrorKind

BUTTON = Element(id=3, role="button", name="OK", box=(10, 20, 30, 8))
SEEN = Observation(url="http://a/", screenshot=shot(0, 80, 64), elements=(BUTTON,))


def acting(name, **arguments):
    return step(observation=SEEN, action=Action(name=name, **arguments))


def test_a_point_is_a_share_of_the_picture():
    assert mark_of(acting(ActionName.CLICK, coordinate=(250, 500))) == Mark(20, 32)
    assert mark_of(acting(ActionName.CLICK, coordinate=(1000, 0))) == Mark(80, 0)
    assert mark_of(acting(ActionName.TYPE, coordinate=(500, 500), text="x"), scale=2) == Mark(40, 32)


@pytest.mark.parametrize(("scale", "mark"), [(1, Mark(10, 20, 30, 8)), (2, Mark(20, 40, 60, 16))])
def test_an_element_is_its_box_in_picture_pixels(scale, mark):
    assert mark_of(acting(ActionName.HOVER, element_id=3), scale) == mark
    assert mark.is_box


def test_a_box_is_cut_at_the_pictures_edge():
    wide = Element(id=0, role="link", box=(-5, 60, 500, 50))
    seen = SEEN.model_copy(update={"elements": (wide,)})
    found = mark_of(step(observation=seen, action=Action(name=ActionName.CLICK, element_id=0)))
    assert found == Mark(0, 60, 80, 4)


def test_what_points_at_nothing_has_no_mark():
    assert mark_of(acting(ActionName.SCROLL, direction="up")) is None
    assert mark_of(acting(ActionName.CLICK, element_id=4)) is None  # not listed
    assert mark_of(step(action=None, parse_error=ParseErrorKind.NO_TOOL_CALL)) is None
    assert target_of(acting(ActionName.CLICK, element_id=3)) == BUTTON
