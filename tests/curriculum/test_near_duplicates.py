import random

import pytest

from webgym_cli.curriculum.filters import SeenTexts, normalize_words

HISTORY = "Show me the order history of Emma Lopez in March 2023"


@pytest.fixture
def seen():
    seen_texts = SeenTexts(0.8)
    seen_texts.add(HISTORY)
    seen_texts.add("Open the wish list")
    return seen_texts


@pytest.mark.parametrize(
    "text",
    [
        HISTORY,
        "show me the ORDER history, of Emma Lopez: in March 2023!",
        "In March 2023, show me the order history of Emma Lopez",
        "Show me the whole order history of Emma Lopez in March 2023",
    ],
)
def test_the_same_in_other_words_or_spelling_is_found(seen, text):
    assert seen.find_similar(text) == HISTORY


def test_what_shares_fewer_words_is_another_text(seen):
    """Eleven words each, nine in common: 9 of 13; with ten of them 10 of 12."""
    assert seen.find_similar("Show me the order history of Emma Lopez in May 2022") is None
    assert seen.find_similar("Show me the order history of Emma Lopez in May 2023") == HISTORY
    assert seen.find_similar("Show the cart") is None


def test_letters_that_are_written_in_two_ways_are_the_same():
    assert normalize_words("Café Straße №5") == normalize_words("CAFE\u0301 STRASSE No5")


def test_with_a_share_of_1_the_words_must_be_the_same():
    exact = SeenTexts(1.0)
    exact.add("one two three")
    assert exact.find_similar("three, two, one") == "one two three"
    assert exact.find_similar("one two three four") is None


def test_a_text_without_words_is_like_no_other(seen):
    assert seen.find_similar("?!") is None


@pytest.mark.parametrize("share", [0.5, 0.7, 0.8, 0.9])
def test_looking_at_the_rarest_words_finds_what_looking_at_all_texts_finds(share):
    generator = random.Random(share)
    texts = [" ".join(generator.choices("abcdefghij", k=generator.randint(1, 9))) for _ in range(300)]
    seen_texts = SeenTexts(share)
    for text in texts[:200]:
        seen_texts.add(text)
    for text in texts[200:]:
        mine = set(normalize_words(text))
        shares = [
            len(mine & set(normalize_words(other))) / len(mine | set(normalize_words(other))) for other in texts[:200]
        ]
        assert (seen_texts.find_similar(text) is not None) == (max(shares) >= share)
