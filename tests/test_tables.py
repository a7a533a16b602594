import pytest

from tests.tables import each


def test_every_row_of_a_table_is_tried_and_those_that_fail_are_named():
    tried = []

    @each(("number", "square"), [(1, 1), (2, 5), (3, 9), (4, 0)])
    def check(number, square):
        tried.append(number)
        assert number**2 == square

    with pytest.raises(ExceptionGroup) as caught:
        check()
    assert tried == [1, 2, 3, 4]
    notes = [error.__notes__[-1] for error in caught.value.exceptions]
    assert notes == ["of the row {'number': 2, 'square': 5}", "of the row {'number': 4, 'square': 0}"]


@each("text", ["a", "b"])
def test_a_row_may_be_one_value(text):
    assert text in "ab"


def test_a_row_that_raises_nothing_where_it_should_fails():
    @each("text", ["5", "x"])
    def check(text):
        with pytest.raises(ValueError, match="int"):
            int(text)

    with pytest.raises(BaseExceptionGroup, match="1 of 2 rows"):
        check()


def test_what_would_pass_without_having_run_is_refused():
    async def check(text):
        pass

    for rows, tested in ((["a"], check), ([], len)):
        with pytest.raises(AssertionError):
            each("text", rows)(tested)
