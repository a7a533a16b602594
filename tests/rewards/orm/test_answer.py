"""From log-probabilities to P(YES), against values computed by hand."""

from math import inf, log, nan

import pytest

from tests.tables import each
from webgym_cli.rewards.orm.client import NO, SPELLINGS, YES, OrmError, compute_probability, find_first_tokens

WORDS = SPELLINGS[YES], SPELLINGS[NO]


def p(listed, yes=WORDS[0], no=WORDS[1]):
    return compute_probability([(token, log(share)) for token, share in listed.items()], yes, no)


@each(
    ("listed", "yes", "mass"),
    [
        ({"YES": 0.6, "NO": 0.2, "The": 0.2}, 0.75, 0.8),
        ({"YES": 0.5, " Yes": 0.1, "yes": 0.1, "No": 0.2, " no": 0.1}, 0.7, 1.0),
        ({"NO": 0.9, "YES": 0.1}, 0.1, 1.0),
        ({"YES": 1e-6, "NO": 3e-6}, 0.25, 4e-6),
        # a NO that is not listed is as likely as the last that is, a YES impossible
        ({"YES": 0.6, "The": 0.3, "A": 0.2}, 0.6 / 0.8, None),
        ({"The": 0.98, "YES": 0.01}, 0.5, None),
        ({"NO": 0.01, "The": 0.9}, 0.0, None),
    ],
)
def test_all_spellings_count_and_the_rest_does_not(listed, yes, mass):
    result = p(listed)
    assert result.yes == pytest.approx(yes)
    assert mass is None or result.mass == pytest.approx(mass)


@each(
    ("listed", "words"),
    [
        ([], "neither YES nor NO"),
        ([("The", -0.1), ("Maybe", -2.3)], "neither YES nor NO"),
        ([("YESTERDAY", -0.1)], "neither YES nor NO"),
        ([("YES", -9999.0), ("NO", -9999.0)], "neither YES nor NO"),
        ([("YES", nan), ("NO", nan)], "no number"),
        *(([("YES", value), ("NO", value)], "above 0") for value in (inf, 800.0)),
    ],
)
def test_without_either_or_a_number_that_says_something_there_is_no_answer(listed, words):
    with pytest.raises(OrmError, match=words):
        compute_probability(listed, *WORDS)


def spelled(**ids):
    """Each spelling's ids; those that aren't named have two tokens."""
    by_spelling = {spelling: [1, 2] for of_one in SPELLINGS.values() for spelling in of_one}
    return by_spelling | {name.replace("_", " "): list(value) for name, value in ids.items()}


@each(
    ("ids", "yes", "no"),
    [
        ({"YES": [5], "yes": [6], "_Yes": [7], "NO": [8]}, {5, 6, 7}, {8}),  # spellings of one token
        ({"YES": [5, 9], "Yes": [6, 9], "NO": [8]}, {5}, {8}),  # else the first token
        # A model is trained to say what it is asked for, even where another spelling is one token.
        ({"YES": [5, 9], "yes": [6], "NO": [8, 9], "no": [7]}, {5, 6}, {8, 7}),
        ({"YES": [5], "_Yes": [3], "NO": [8], "_No": [3]}, {5}, {8}),  # a token of both is neither's
    ],
)
def test_the_tokens_that_begin_an_answer(ids, yes, no):
    assert find_first_tokens(spelled(**ids)) == {YES: yes, NO: no}
    with pytest.raises(OrmError, match="same token"):
        find_first_tokens(spelled(YES=[0], NO=[0]))
