import pytest
from pydantic import ValidationError

from webgym_cli.records.action import Action, ActionName

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
    {"name": "click", "here": True, "button": "right", "clicks": 2, "modifiers": ("Shift",)},
    {"name": "type", "here": True, "text": "x", "append": True, "submit": True},
    {"name": "key", "keys": ("Control", "a")},
    {"name": "select_option", "element_id": 1, "text": "Rome"},
    {"name": "scroll", "direction": "left", "amount": 250, "element_id": 1},
    {"name": "drag", "element_id": 1, "to_element_id": 2},
    {"name": "upload_file", **POINT, "text": "a.txt"},
    {"name": "go_forward"},
    {"name": "reload"},
    {"name": "new_tab"},
    {"name": "switch_tab", "tab": 0},
    {"name": "close_tab"},
    {"name": "accept_dialog", "text": "yes"},
    {"name": "dismiss_dialog"},
    {"name": "zoom", **POINT, "to_coordinate": (0, 0)},
    {"name": "terminate"},
]
WRONG = [
    {"name": "click"},
    {"name": "hover"},
    {"name": "type", "text": "x"},
    {"name": "type", "element_id": 1},
    {"name": "scroll"},
    {"name": "scroll", "direction": "in"},
    {"name": "scroll", "direction": "up", "amount": 0},
    {"name": "key"},
    {"name": "key", "keys": ()},
    {"name": "select_option", "text": "x"},
    {"name": "drag", "element_id": 1},
    {"name": "drag", "element_id": 1, "to_coordinate": (0, 1001)},
    {"name": "upload_file", "element_id": 1},
    {"name": "switch_tab"},
    {"name": "click", "element_id": 1, "button": "left"},
    {"name": "click", "element_id": 1, "here": False},
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
    assert {*ActionName} - {ActionName.CALL} <= {values["name"] for values in COMPLETE}


def test_an_action_without_later_arguments_has_the_bytes_of_old():
    line = '{"name":"go_back","element_id":null,"coordinate":null,"text":null,"direction":null,"seconds":null,'
    assert Action(name=ActionName.GO_BACK).model_dump_json() == line + '"url":null,"calls":null}'
    typed = Action(name=ActionName.TYPE, here=True, text="x", submit=True)
    assert typed.model_dump_json().endswith('"calls":null,"here":true,"submit":true}')
    assert Action.model_validate_json(typed.model_dump_json()) == typed
