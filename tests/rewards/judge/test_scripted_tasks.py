from tests.tables import each
from webgym_cli.rewards.judge.scripted_server import decide
from webgym_cli.rewards.judge.scripted_tasks import AFTER, BEFORE, feasible, new_tasks


def generate(*tasks, count, page=()):
    return new_tasks({"question": "generate", "tasks": list(tasks), "count": count, "page": list(page)})["tasks"]


def plain(task):
    """A task without the words around it."""
    before = max((words for words in BEFORE if task.startswith(words)), key=len)
    after = max((words for words in AFTER if task.endswith(words)), key=len)
    return task.removeprefix(before).removesuffix(after)


def test_numbers_grow_and_the_first_is_a_task_said_again():
    first, *others = generate("Buy 2 hats", "Buy 7 coats", count=5)
    assert first == "Buy 2 hats"
    assert [plain(task) for task in others] == ["Buy 3 hats", "Buy 8 coats", "Buy 4 hats", "Buy 9 coats"]


def test_names_are_exchanged_at_their_place():
    rows = {
        plain(task) for task in generate('show "Desk" by "Price"', 'sort "Garden": "Name"', 'show "Lamps"', count=200)
    }
    places, forms = ("Desk", "Garden", "Lamps"), ('show "{}" by "{}"', 'sort "{}": "{}"')
    both = {form.format(place, order) for form in forms for place in places for order in ("Price", "Name")}
    assert rows == both | {f'show "{place}"' for place in places}


def test_the_same_question_has_the_same_answer_and_another_another():
    given = [f'show "{place}" by "{order}"' for place, order in zip("ABCDE", "VWXYZ", strict=True)]
    assert generate(*given, count=30) == generate(*given, count=30) != generate(*reversed(given), count=30)


def test_a_task_without_either_is_put_otherwise():
    first, *others = generate("Open the cart", count=200)
    assert first == "Open the cart"
    assert len(others) == len(set(others)) == len(BEFORE) * len(AFTER) - 1
    assert {plain(task) for task in others} == {"Open the cart"}


def test_words_around_a_task_are_not_put_around_it_twice():
    given = f'{BEFORE[1]}show "Desk"{AFTER[1]}'
    assert {plain(task) for task in generate(given, count=20)} == {'show "Desk"'}


def test_a_name_of_the_page_gives_way_to_the_others_of_the_page():
    names = ("Desk", "Garden", "Lamps")
    for given, shown in (("Desk", names), ("Sofas", ("Sofas",))):
        tasks = generate(f'show "{given}"', count=200, page=names)
        assert {plain(task) for task in tasks} == {f'show "{one}"' for one in shown}


@each(("task", "can_be"), {"Tell the weather": False, "E-mail the order to Bob": False, "Buy it": True}.items())
def test_some_things_no_site_can(task, can_be):
    assert feasible({"task": task}) is can_be
    assert decide("feasible", {"task": task})["verdict"] == ("yes" if can_be else "no")
