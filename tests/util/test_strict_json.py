import json

import pytest

from webgym_cli.util.json_values import encode_json

NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({"a": [1.5, "ä", None, True]}, {"a": [1.5, "ä", None, True]}),
        ({"a": NAN, "b": [(INFINITY, -INFINITY, 1.0)]}, {"a": None, "b": [[None, None, 1.0]]}),
        ({NAN: 1}, {"nan": 1}),
        (NAN, None),
    ],
)
def test_numbers_that_json_lacks_become_null(value, read):
    def refuse(name):
        raise ValueError(name)

    assert json.loads(encode_json(value), parse_constant=refuse) == read
    assert json.loads(encode_json(value, ensure_ascii=True, indent=1), parse_constant=refuse) == read
