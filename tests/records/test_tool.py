import json

import pytest
from pydantic import ValidationError

from tests.tables import each
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.tool import MAX_DEPTH, ToolCall


def nested(depth):
    value = {}
    for _ in range(depth - 1):
        value = {"a": [value]} if depth % 2 else {"a": value}
    return value


def test_a_call_comes_back_from_its_line():
    call = ToolCall(name="f", arguments={"a": [1, 2.5, None, {"b": "ä"}], "n": 10**30})
    action = Action(name=ActionName.CALL, calls=(call,), text="so")
    assert Action.model_validate_json(action.model_dump_json()) == action


@each(
    "arguments", [{"a": float("nan")}, {"a": float("inf")}, {"a": "\ud83d"}, {"\ud83d": 1}, nested(MAX_DEPTH + 1), [1]]
)
def test_what_cannot_be_stored_is_refused(arguments):
    with pytest.raises(ValidationError):
        ToolCall(name="f", arguments=arguments)


def test_depth_is_bounded_without_recursion():
    ToolCall(name="f", arguments=nested(MAX_DEPTH))
    deep = json.loads('{"a":' * 900 + "1" + "}" * 900)
    with pytest.raises(ValidationError, match="nested more than"):
        ToolCall(name="f", arguments=deep)


@pytest.mark.parametrize("fields", [{}, {"calls": ()}, {"text": "x"}])
def test_calling_needs_a_call(fields):
    with pytest.raises(ValidationError):
        Action(name=ActionName.CALL, **fields)
