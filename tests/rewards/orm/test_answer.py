"""From log-probabilities to P(YES), against values computed by hand."""

from math import inf, log, nan

import pytest

from webgym_cli.rewards.orm.client import NO, SPELLINGS, YES, OrmError, compute_probability, find_first_tokens

WORDS = SPELLINGS[YES], SPELLINGS[NO]


def p(listed, yes=WORDS[0], no=WORDS[1]):
    return compute_probability([(token, log(share)) for token, share in listed.items()], yes, no)


@pytest.mark.parametrize(
    ("listed", "yes", "mass"),
    [
        ({"YES": 0.6, "NO": 0.2, "The": 0.2}, 0.75, 0.8),
        ({"YES": 0.5, " Yes": 0.1, "yes": 0.1, "No": 0.2, " no": 0.1}, 0.7, 1.0),
        ({"NO": 0.9, "YES": 0.1}, 0.1, 1.0),
        ({"YES": 1e-6, "NO": 3e-6}, 0.25, 4e-6),
    ],
    ids=str,
)
def test_all_spellings_count_and_the_rest_does_not(listed, yes, mass):
    result = p(listed)
    assert (result.yes, result.mass) == (pytest.approx(yes), pytest.approx(mass))


def test_a_no_that_is_not_listed_is_as_likely_as_the_last_that_is():
    assert p({"YES": 0.6, "The": 0.3, "A": 0.2}).yes == pytest.approx(0.6 / 0.8)
    assert p({"The": 0.98, "YES": 0.01}).yes == pytest.approx(0.5)


def test_a_yes_that_is_not_listed_is_impossible():
    assert p({"NO": 0.01, "The": 0.9}).yes == 0.0


@pytest.mark.parametrize("listed", [{}, {"The": 0.9, "Maybe": 0.1}, {"YESTERDAY": 0.9}], ids=str)
def test_without_either_there_is_no_answer(listed):
    with pytest.raises(OrmError, match="neither YES nor NO"):
        p(listed)


@pytest.mark.parametrize(
    ("value", "reply"), [(nan, "no number"), (inf, "above 0"), (800.0, "above 0"), (-9999.0, "neither YES nor NO")]
)
def test_numbers_that_say_nothing_are_no_answer(value, reply):
    with pytest.raises(OrmError, match=reply):
        compute_probability([("YES", value), ("NO", value)], *WORDS)


def spelled(**ids):
    """Each spelling's ids; those that aren't named have two tokens."""
    by_spelling = {spelling: [1, 2] for of_one in SPELLINGS.values() for spelling in of_one}
    return by_spelling | {name.replace("_", " "): list(value) for name, value in ids.items()}


@pytest.mark.parametrize(
    ("ids", "yes", "no"),
    [
        pytest.param({"YES": [5], "yes": [6], "_Yes": [7], "NO": [8]}, {5, 6, 7}, {8}, id="spellings of one token"),
        pytest.param({"YES": [5, 9], "Yes": [6, 9], "NO": [8]}, {5}, {8}, id="else the first token"),
        # A model is trained to say what it is asked for, even where another spelling is one token.
        pytest.param({"YES": [5, 9], "yes": [6], "NO": [8, 9], "no": [7]}, {5, 6}, {8, 7}, id="what is asked for"),
        pytest.param({"YES": [5], "_Yes": [3], "NO": [8], "_No": [3]}, {5}, {8}, id="a token of both is neither's"),
    ],
)
def test_the_tokens_that_begin_an_answer(ids, yes, no):
    assert find_first_tokens(spelled(**ids)) == {YES: yes, NO: no}


def test_a_tokenizer_that_can_not_tell_them_apart_is_of_no_use():
    with pytest.raises(OrmError, match="same token"):
        find_first_tokens(spelled(YES=[0], NO=[0]))
