"""Where an action pointed, in pixels of its screenshot."""

from tests.records.builders import shot, step
from webgym_cli.inspect.page import ActionMarker, find_target, locate_marker
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.trajectory import Element, Observation, ParseErrorKind

BUTTON = Element(id=3, role="button", name="OK", box=(10, 20, 30, 8))
SEEN = Observation(url="http://a/", screenshot=shot(0, 80, 64), elements=(BUTTON,))


def acting(name, **arguments):
    return step(observation=SEEN, action=Action(name=name, **arguments))


def test_a_point_is_a_share_of_the_picture():
    assert locate_marker(acting(ActionName.CLICK, coordinate=(250, 500))) == ActionMarker(20, 32)
    assert locate_marker(acting(ActionName.CLICK, coordinate=(1000, 0))) == ActionMarker(80, 0)
    assert locate_marker(acting(ActionName.TYPE, coordinate=(500, 500), text="x")) == ActionMarker(40, 32)


def test_an_element_is_its_box_in_picture_pixels():
    assert locate_marker(acting(ActionName.HOVER, element_id=3)) == ActionMarker(10, 20, 30, 8)
    assert locate_marker(acting(ActionName.HOVER, element_id=3, position=(500, 250))) == ActionMarker(25, 22)


def test_a_box_is_cut_at_the_pictures_edge():
    seen = SEEN.model_copy(update={"elements": (Element(id=0, role="link", box=(-5, 60, 500, 50)),)})
    action_marker = locate_marker(step(observation=seen, action=Action(name=ActionName.CLICK, element_id=0)))
    assert action_marker == ActionMarker(0, 60, 80, 4)


def test_what_points_at_nothing_has_no_mark():
    assert locate_marker(acting(ActionName.SCROLL, direction="up")) is None
    assert locate_marker(acting(ActionName.CLICK, element_id=4)) is None  # not listed
    assert locate_marker(step(action=None, parse_error=ParseErrorKind.NO_TOOL_CALL)) is None
    assert find_target(acting(ActionName.CLICK, element_id=3)) == BUTTON
