"""What a person did, written as a policy would do it."""

import pytest

from webgym_cli.agent.actions.action_sets import find_action_set
from webgym_cli.config.load import load
from webgym_cli.record.replay import ActionWriter
from webgym_cli.records.action import Action
from webgym_cli.records.trajectory import Element
from webgym_cli.rollout.episode import build_prompt_spec

SIZE = (1000, 500)
MAP = Element(id=4, role="canvas", name="Map", box=(100, 50, 400, 400))
BUTTON = Element(id=5, role="button", name="OK", box=(600, 50, 80, 30))
MORE = "context_config.more_actions=true"


def write(name, *places, settings=(MORE,), way=(), **fields):
    marks = ("context_config.interaction_mode=set_of_marks", "context_config.prompt_version=full")
    written = ActionWriter(load(overrides=[*marks, *settings])).write(
        Action(name=name, here=True, **fields), places, SIZE, way
    )
    return written.model_dump(exclude_none=True, exclude={"name"})


def test_where_a_large_element_is_clicked_is_kept_and_a_small_one_is_clicked_as_a_whole():
    assert write("click", (MAP, (200, 150)), None) == {"element_id": 4, "position": (250, 250)}
    assert write("click", (BUTTON, (610, 55)), None) == {"element_id": 5}
    assert write("click", (MAP, (200, 150)), None, settings=()) == {"element_id": 4}
    assert write("type", (MAP, (200, 150)), None, text="x") == {"element_id": 4, "text": "x"}


def test_a_drag_within_an_element_needs_positions():
    ends = (MAP, (200, 150)), (MAP, (500, 450))
    here = {"element_id": 4, "position": (250, 250), "to_element_id": 4, "to_position": (1000, 1000)}
    assert write("drag", *ends, to_coordinate=(0, 0)) == here
    with pytest.raises(LookupError, match="more_actions"):
        write("drag", *ends, settings=(), to_coordinate=(0, 0))
    onto = (BUTTON, (610, 55)), (BUTTON.model_copy(update={"id": 6}), (610, 95))
    assert write("drag", *onto, to_coordinate=(0, 0)) == {"element_id": 5, "to_element_id": 6}


def test_a_drag_keeps_its_way_where_the_set_has_paths_and_with_marks_within_an_element():
    ends, way = ((MAP, (200, 150)), (MAP, (500, 450))), [(200, 450), (600, 0)]
    fields = {"to_coordinate": (0, 0), "way": way}
    assert write("drag", *ends, **fields)["path"] == ((250, 1000), (1000, 0))
    points = "context_config.interaction_mode=coordinates"
    assert write("drag", *ends, settings=(MORE, points), **fields)["path"] == ((200, 900), (600, 0))
    assert "path" not in write("drag", *ends, settings=(points,), **fields)
    assert "path" not in write("drag", ends[0], (BUTTON, (610, 55)), **fields)
    for place in ((BUTTON, (610, 55)), (None, (610, 55))):
        assert write("drag", place, (None, (9, 9)), settings=(MORE, points), **fields)["path"] == ((200, 900), (600, 0))


def test_points_stay_points_in_coordinates():
    settings = (MORE, "context_config.interaction_mode=coordinates")
    assert write("click", (MAP, (200, 150)), None, settings=settings) == {"coordinate": (200, 300)}


def test_an_action_is_a_response_of_a_thinking_model():
    settings = load(overrides=["policy_config.thinking=true", "policy_config.template=mine"])
    spec, wait = build_prompt_spec(settings, None), Action(name="wait", seconds=1)
    text = ActionWriter(settings).format(wait)
    assert find_action_set(spec).parse(text, spec, truncated=False, max_calls=1) == wait
