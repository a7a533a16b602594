"""What all readers share."""

import pytest

from tests.imports.foreign import CALL
from tests.tables import each
from webgym_cli.agent.actions.parse import ParseError, parse_web_action
from webgym_cli.imports.pickle_stubs import Stub
from webgym_cli.imports.source import NotUnderstood, parse_response, to_number, to_plain
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.trajectory import ParseErrorKind

COORDINATES = InteractionMode.COORDINATES
CLICK = Action(name=ActionName.CLICK, coordinate=(1.5, 2))


@each("raw", ["", "I click.", CALL, f"{CALL}{CALL}", "<tool_call>", "<tool_call>{}</tool_call>", "\ud800"])
def test_our_parser_always_agrees_with_what_is_stored(raw):
    for theirs in (None, CLICK):
        imported_step = parse_response(raw, COORDINATES, known_action=theirs)
        read = parse_web_action(imported_step.response, COORDINATES)
        assert imported_step.action == (None if isinstance(read, ParseError) else read)
        assert imported_step.parse_error == (read.kind if isinstance(read, ParseError) else None)
        imported_step.response.encode()


def test_a_call_of_their_own_stays_as_it_is_and_a_translated_action_stands_behind_their_words():
    assert parse_response(CALL, COORDINATES, known_action=CLICK).response == CALL
    broken = parse_response("<tool_call>{}</tool_call>", COORDINATES, known_action=CLICK)
    assert (broken.action, broken.parse_error) == (None, ParseErrorKind.UNKNOWN_FUNCTION)
    translated = parse_response("click [3]", COORDINATES, known_action=CLICK)
    assert translated.response.startswith("click [3]\n<tool_call>") and translated.action == CLICK


def test_endless_shared_parts_are_not_written_out():
    """What a pickle of some hundred bytes can hold: 2**60 lists when written out."""
    part = []
    for _ in range(60):
        part = [part, part]
    with pytest.raises(NotUnderstood, match="more than"):
        to_plain(part)
    circle = []
    circle.append(circle)
    with pytest.raises(NotUnderstood):
        to_plain(circle)


def test_plain_values_are_what_json_can_hold_and_numbers_finite():
    assert to_plain(Stub("a.B", fields={"x": (1, b"2")}, items={3: None})) == {"3": None, "x": [1, "<bytes>"]}
    assert to_plain("\ud800") == "?"
    with pytest.raises(NotUnderstood, match="63 bits"):
        to_plain(1 << 80)
    odd = (True, "1", None, float("nan"), float("inf"), 10**400)
    assert [to_number(value, -1.0) for value in (*odd, 2)] == [-1.0] * 6 + [2.0]
