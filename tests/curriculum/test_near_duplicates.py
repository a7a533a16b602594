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
    ("text", "similar"),
    [
        (HISTORY, True),
        ("show me the ORDER history, of Emma Lopez: in March 2023!", True),
        ("In March 2023, show me the order history of Emma Lopez", True),
        ("Show me the whole order history of Emma Lopez in March 2023", True),
        ("Show me the order history of Emma Lopez in May 2023", True),  # ten of eleven words each: 10 of 12
        ("Show me the order history of Emma Lopez in May 2022", False),  # nine: 9 of 13
        ("Show the cart", False),
        ("?!", False),
    ],
)
def test_the_same_in_other_words_or_spelling_is_known(seen, text, similar):
    assert seen.find_similar(text) == (HISTORY if similar else None)


def test_with_a_share_of_1_the_words_must_be_the_same():
    exact = SeenTexts(1.0)
    exact.add("one two three")
    assert exact.find_similar("three, two, one") == "one two three"
    assert exact.find_similar("one two three four") is None
    assert normalize_words("Café Straße №5") == normalize_words("CAFE\u0301 STRASSE No5")


@pytest.mark.parametrize("share", [0.5, 0.7, 0.8, 0.9])
def test_looking_at_the_rarest_words_finds_what_looking_at_all_texts_finds(share):
    generator = random.Random(share)
    texts = [" ".join(generator.choices("abcdefghij", k=generator.randint(1, 9))) for _ in range(300)]
    seen_texts, words = SeenTexts(share), [set(normalize_words(text)) for text in texts]
    for text in texts[:200]:
        seen_texts.add(text)
    for text, mine in zip(texts[200:], words[200:], strict=True):
        shares = [len(mine & others) / len(mine | others) for others in words[:200]]
        assert (seen_texts.find_similar(text) is not None) == (max(shares) >= share)
