"""Messages on invalid records."""

import pytest
from pydantic import TypeAdapter, ValidationError

from webgym_cli.records.base import describe_invalid


@pytest.mark.parametrize(
    ("kind", "value", "branches", "place"),
    [
        (dict[str, float], {"str": "x"}, (), "str: "),
        (dict[str, dict[str, int]], {"int": {"str": "x"}}, (), "int.str: "),
        (list[int | str], [None], (), "0.int: "),
        (list[int | str], [None], ("int", "str"), "0: "),
        (float, "x", (), "Input should be"),
    ],
)
def test_the_place_has_every_key_and_no_branch_of_a_union_that_is_left_out(kind, value, branches, place):
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(value)
    assert describe_invalid(caught.value, branches).startswith(place)
