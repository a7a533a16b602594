import pytest

from webgym_cli.rewards.judge.scripted_server import decide
from webgym_cli.rewards.judge.scripted_tasks import OTHERWISE, feasible, new_tasks


def made(*tasks, count):
    return new_tasks({"question": "generate", "tasks": list(tasks), "count": count})["tasks"]


def plain(task):
    """A task without the words around it."""
    found = [form.partition("{}")[0] for form in OTHERWISE]
    return next((task.removeprefix(before) for before in found if task.startswith(before)), task)


def test_numbers_grow_and_the_first_is_a_task_said_again():
    first, *others = made("Buy 2 hats", "Buy 7 coats", count=5)
    assert first == "Buy 2 hats"
    assert [plain(task) for task in others] == ["Buy 3 hats", "Buy 8 coats", "Buy 4 hats", "Buy 9 coats"]


def test_names_are_exchanged_at_their_place():
    given = ('show "Desk" by "Price"', 'sort "Garden": "Name"', 'show "Lamps"')
    found = {plain(task) for task in made(*given, count=200)}
    pairs = {(place, order) for place in ("Desk", "Garden", "Lamps") for order in ("Price", "Name")}
    forms = ('show "{}" by "{}"', 'sort "{}": "{}"')
    assert found == {form.format(*pair) for form in forms for pair in pairs} | {
        f'show "{place}"' for place in ("Desk", "Garden", "Lamps")
    }


def test_the_same_question_has_the_same_answer_and_another_another():
    given = [f'show "{place}" by "{order}"' for place, order in zip("ABCDE", "VWXYZ", strict=True)]
    assert made(*given, count=30) == made(*given, count=30) != made(*reversed(given), count=30)


def test_a_task_without_either_is_put_otherwise():
    first, *others = made("Open the cart", count=12)
    assert first == "Open the cart"
    assert set(others) == {form.format("Open the cart") for form in OTHERWISE}


@pytest.mark.parametrize(
    ("task", "can_be"), [("Tell the weather", False), ("E-mail the order to Bob", False), ("Buy it", True)]
)
def test_some_things_no_site_can(task, can_be):
    assert feasible({"task": task}) is can_be
    assert decide("feasible", {"task": task})["verdict"] == ("yes" if can_be else "no")
