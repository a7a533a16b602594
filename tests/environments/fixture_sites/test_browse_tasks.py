"""Tasks on the shop's directory: what is tested is asked for as nothing that is trained on."""

import re

from webgym_cli.environments.fixture_sites.shop import CATEGORIES
from webgym_cli.environments.fixture_sites.webarena_tasks import PHRASES, browse_sets
from webgym_cli.records.prompt_version import PromptVersion
from webgym_cli.rewards.judge.scripted_tasks import new_tasks
from webgym_cli.tasks.source import open_tasks
from webgym_cli.testing.tiny_model import list_phrases

SETS = ("browse-train", "browse-test")


def read_instructions(name):
    tasks = open_tasks(f"webarena:{name}")
    return [task.instruction for task in tasks.read(range(len(tasks)))]


def test_training_and_test_tasks_pair_categories_and_phrases_otherwise():
    train, test = read_instructions("browse-train"), read_instructions("browse-test")
    assert (len(set(train)), len(set(test)), set(train) & set(test)) == (10, 10, set())
    for names in (train, test):
        assert {name for name in CATEGORIES for text in names if f'"{name}"' in text} == set(CATEGORIES)
    start = open_tasks("webarena:browse-test").task(0)
    assert (start.environment, start.start_url) == ("webarena", "http://shop.test/directory")


def test_a_phrase_asks_for_one_category_in_training_and_for_another_in_the_tests():
    train, test = ({re.sub('".*"', "", text): text.split('"')[1] for text in read_instructions(name)} for name in SETS)
    assert len(train) == len(test) == len(PHRASES)
    assert not any(train[phrase] == test[phrase] for phrase in train)


def test_the_generator_makes_what_neither_has():
    train, test = read_instructions("browse-train"), read_instructions("browse-test")
    every = {phrase.format(category) for phrase in PHRASES for category in CATEGORIES}
    tasks = set(new_tasks({"tasks": train, "count": 200})["tasks"])
    assert len((tasks & every) - set(train) - set(test)) >= 5
    assert len(tasks - every) >= 20  # put in other words


def test_the_wrong_page_is_no_success():
    for fields in browse_sets()["browse-test"].values():
        (category,) = (name for name in CATEGORIES if f'"{name}"' in fields["intent"])
        assert fields["eval"]["reference_url"].endswith(f"/directory/{category.lower()}")
        assert fields["expert"][0] == {"click": f"link {category}"}


def test_the_tiny_model_knows_each_category_as_one_token():
    assert list_phrases(PromptVersion.WEBRL)[-len(CATEGORIES) :] == list(CATEGORIES)
