from tests.tables import each
from webgym_cli.environments.fixture_sites.answers import contains_answer, find_stray_numbers, is_same_text


@each(
    ("expected", "same", "others"),
    [
        ("€12.40", ["It costs $12.40.", "12.4", "12,40 Euro"], []),
        ("12.40", ["12,40 Euro"], ["12.41"]),
        ("1204", ["1,204 people", "1,204"], []),
        ("1,204", ["1204"], []),
        ("1204.5", ["1,204.50"], []),
        ("1.204", [], ["1,204"]),
        ("Amber Kettle", ["The AMBER kettle!", "Amber-Kettle"], ["Kettle Amber", "Amber and Kettle", "Amber Kettles"]),
        ("08:15", ["at 8:15"], ["08:51"]),
        ("8:15", ["It leaves at 08:15."], []),
        ("7", ["seven messages"], ["", "17", "70", "7.5"]),
        ("seven", ["7 messages"], []),
        ("Café noir", ["Cafe\u0301 Noir"], []),
        ("480 g", ["480g"], []),
        ("ktr-4821", ["code KTR-4821"], ["KTR-4822"]),
        ("2027-03-14", ["on 2027-03-14"], ["2027-03-15"]),
        ("", [], ["anything"]),
    ],
)
def test_what_is_the_same_in_other_writing(expected, same, others):
    assert [answer for answer in same if not contains_answer(answer, expected)] == []
    assert [answer for answer in others if contains_answer(answer, expected)] == []


def test_stray_numbers_are_those_that_nobody_asked_for_and_the_same_text_has_nothing_more():
    assert find_stray_numbers("12.40 of 3 or 9", "€12.40", "Which of the 3?") == ["9"]
    assert find_stray_numbers("1,204 in one city", "1204") == []
    assert is_same_text("Mill Lane 7", "mill lane, 7")
    assert not is_same_text("Mill Lane 7", "Mill Lane 7 b")
