from tests.tables import each
from webgym_cli.environments.fixture_sites.answers import contains_answer, find_stray_numbers, is_same_text


@each(
    ("answer", "expected"),
    [
        ("It costs $12.40.", "€12.40"),
        ("12.4", "€12.40"),
        ("12,40 Euro", "12.40"),
        ("1,204 people", "1204"),
        ("1204", "1,204"),
        ("1,204.50", "1204.5"),
        ("The AMBER kettle!", "Amber Kettle"),
        ("Amber-Kettle", "Amber Kettle"),
        ("at 8:15", "08:15"),
        ("It leaves at 08:15.", "8:15"),
        ("seven messages", "7"),
        ("7 messages", "seven"),
        ("Cafe\u0301 Noir", "Café noir"),
        ("480g", "480 g"),
        ("code KTR-4821", "ktr-4821"),
    ],
)
def test_what_is_the_same_in_other_writing(answer, expected):
    assert contains_answer(answer, expected)


@each(
    ("answer", "expected"),
    [
        ("", "7"),
        ("17", "7"),
        ("70", "7"),
        ("7.5", "7"),
        ("12.41", "12.40"),
        ("1,204", "1.204"),
        ("08:51", "08:15"),
        ("Kettle Amber", "Amber Kettle"),
        ("Amber and Kettle", "Amber Kettle"),
        ("Amber Kettles", "Amber Kettle"),
        ("KTR-4822", "KTR-4821"),
        ("2027-03-15", "2027-03-14"),
        ("anything", ""),
    ],
)
def test_what_is_not_the_same(answer, expected):
    assert not contains_answer(answer, expected)


def test_stray_numbers_are_those_that_nobody_asked_for():
    assert find_stray_numbers("12.40 of 3 or 9", "€12.40", "Which of the 3?") == ["9"]
    assert find_stray_numbers("1,204 in one city", "1204") == []


def test_same_text_has_nothing_more_and_nothing_less():
    assert is_same_text("Mill Lane 7", "mill lane, 7")
    assert not is_same_text("Mill Lane 7", "Mill Lane 7 b")
