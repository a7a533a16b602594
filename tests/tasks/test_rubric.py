import pytest

from tests.tables import each
from tests.tasks.lines import FACTS, GROUPS
from webgym_cli.tasks.format import BadRubricError, has_unknown_fields, list_facts


@each(
    ("value", "has_fields", "facts"),
    [
        (None, False, None),
        ("", False, ()),
        ("  ", False, ()),
        ([], False, ()),
        ("Names the shoe ", False, ("Names the shoe",)),
        (["Names the shoe", " ", "Names the price"], False, ("Names the shoe", "Names the price")),
        (FACTS, True, ("Names the shoe", "Names the price")),
        (FACTS[0], True, ("Names the shoe",)),
        (
            GROUPS,
            True,
            (
                "[Group G1: The shoe] Names it",
                "[Group G1: The shoe] Names its colour",
                "[Group 2: The price] Names it in euros",
            ),
        ),
        ([{"facts": ["a"]}, {"id": "", "facts": []}, {"facts": [{"description": "b"}]}], True, None),
        (["Names the shoe", GROUPS[1]], True, ("Names the shoe", "[Group 2: The price] Names it in euros")),
    ],
)
def test_every_shape_has_its_facts(value, has_fields, facts):
    assert has_unknown_fields(value) is has_fields
    if facts is not None:
        assert list_facts(value) == facts


def test_a_group_without_id_has_its_number_and_our_own_lists_stay_as_they_are():
    assert list_facts([{"facts": ["a"]}, {"facts": ["b"], "description": "B"}]) == ("[Group 1] a", "[Group 2: B] b")
    assert list_facts([" a ", ""], verbatim=True) == (" a ", "")
    assert list_facts(FACTS, verbatim=True) == ("Names the shoe", "Names the price")


@each(
    ("value", "place"),
    [
        (5, ": neither"),
        (["a", 5], ".1: neither"),
        (["a", None], ".1: neither"),
        ([{"difficulty": 1}], ".0: neither"),
        ([{"description": 5}], ".0: neither"),
        ([{"facts": "a"}], ".0.facts: not a list"),
        ([{"facts": ["a", 5]}], ".0.facts.1: not a text"),
        ({"facts": [5]}, ".facts.0: not a text"),
    ],
)
def test_what_is_no_rubric_names_its_place(value, place):
    with pytest.raises(BadRubricError) as caught:
        list_facts(value)
    assert str(caught.value).startswith(place)
