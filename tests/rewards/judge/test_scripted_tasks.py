import pytest

from webgym_cli.rewards.judge.scripted_server import decide
from webgym_cli.rewards.judge.scripted_tasks import OTHERWISE, feasible, new_tasks


def made(*tasks, count):
    return new_tasks({"question": "generate", "tasks": list(tasks), "count": count})["tasks"]


def test_numbers_grow_and_names_go_round_and_the_first_is_a_task_said_again():
    given = ('Buy 2 of "Blue hat"', 'Find "Red coat"')
    assert made(*given, count=5) == [
        'Buy 2 of "Blue hat"',
        'Buy 3 of "Red coat"',
        'Find "Blue hat"',
        'Buy 4 of "Blue hat"',
        OTHERWISE[1].format('Find "Red coat"'),
    ]


def test_a_task_without_either_is_put_otherwise():
    assert made("Open the cart", count=3) == [
        "Open the cart",
        OTHERWISE[0].format("Open the cart"),
        OTHERWISE[1].format("Open the cart"),
    ]


@pytest.mark.parametrize(
    ("task", "can_be"), [("Tell the weather", False), ("E-mail the order to Bob", False), ("Buy it", True)]
)
def test_some_things_no_site_can(task, can_be):
    assert feasible({"task": task}) is can_be
    assert decide("feasible", {"task": task})["verdict"] == ("yes" if can_be else "no")
