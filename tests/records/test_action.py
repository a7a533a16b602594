import pytest
from pydantic import ValidationError

from webgym_cli.records.action import WEB_ACTIONS, Action, ActionName

POINT = {"coordinate": (500, 1000)}
COMPLETE = [
    {"name": "click", **POINT},
    {"name": "click", "element_id": 0},
    {"name": "hover", "element_id": 3},
    {"name": "type", "element_id": 3, "text": ""},
    {"name": "type", **POINT, "text": "x"},
    {"name": "scroll", "direction": "down"},
    {"name": "wait", "seconds": 0},
    {"name": "go_back"},
    {"name": "navigate", "url": "http://a/"},
    {"name": "answer", "text": ""},
]
WRONG = [
    {"name": "click"},
    {"name": "hover"},
    {"name": "type", "text": "x"},
    {"name": "type", "element_id": 1},
    {"name": "scroll"},
    {"name": "scroll", "direction": "left"},
    {"name": "wait"},
    {"name": "wait", "seconds": -1},
    {"name": "wait", "seconds": 61},
    {"name": "wait", "seconds": float("nan")},
    {"name": "navigate"},
    {"name": "answer"},
    {"name": "click", "element_id": -1},
    {"name": "click", "coordinate": (1000.5, 0)},
    {"name": "click", "coordinate": (0, -0.1)},
    {"name": "click", "coordinate": (float("nan"), 0)},
    {"name": "click", "coordinate": (1, 2, 3)},
    {"name": "press", **POINT},
]


@pytest.mark.parametrize("values", COMPLETE, ids=str)
def test_an_action_with_its_arguments_is_one(values):
    assert Action.model_validate(values).name == values["name"]


@pytest.mark.parametrize("values", WRONG, ids=str)
def test_an_action_without_them_is_none(values):
    with pytest.raises(ValidationError):
        Action.model_validate(values)


def test_the_vocabulary_is_closed():
    assert {name.value for name in WEB_ACTIONS} == {values["name"] for values in COMPLETE}
    assert set(ActionName) - set(WEB_ACTIONS) == {ActionName.CALL}
