"""The recipes' pages: the source's values, ours as the shipped file sets them, and a reason for each difference."""

import json
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, table_rows
from webgym_cli.config.load import flatten, load
from webgym_cli.config.renamed import REMOVED

# Each name and value of the source script or paper, and the defaults of the frameworks below it, by the page's table;
# for `webgym` by our setting.
SOURCES = json.loads(Path(__file__).with_name("recipe_sources.json").read_text())
TABLES = [
    ("gsm8k", "Numbers", ("gsm8k",)),
    ("webrl", "Phase 0: imitation", ("webrl",)),
    ("webrl", "Phases: critic and actor", ("webrl",)),
    ("webrl", "Rollouts, new tasks, evaluation", ("webrl",)),
    ("webrl", "Outcome reward model", ("webrl", "orm")),
]


def rows(page, heading):
    texts = table_rows(ROOT / f"docs/recipes/{page}.md", f"## {heading}")
    return [
        (theirs.strip("`"), value.strip("`"), key.strip("`"), ours.strip("`"), why)
        for theirs, value, key, ours, why in texts
    ]


def settings(files):
    return flatten(load(list(files)).model_dump(mode="json"))


@pytest.mark.parametrize(("page", "heading", "files"), TABLES, ids=lambda part: part if isinstance(part, str) else "")
def test_a_table_has_the_files_values_and_says_why_they_differ(page, heading, files):
    known = settings(files)
    for theirs, value, key, ours, why in rows(page, heading):
        if key != "none":
            assert json.loads(ours) == known[key], key
        assert (json.loads(value) == json.loads(ours)) == (why == ""), theirs


@pytest.mark.parametrize("page", dict.fromkeys(page for page, _, _ in TABLES))
def test_a_page_has_all_names_of_its_source_with_their_values(page):
    several = sum(one == page for one, _, _ in TABLES) > 1
    by_name = {
        f"{heading}: {theirs}" if several else theirs: json.loads(value)
        for one, heading, _ in TABLES
        if one == page
        for theirs, value, _, _, _ in rows(page, heading)
    }
    assert by_name == SOURCES[page]


def test_what_differs_from_webgym_and_its_frameworks_is_on_the_page():
    page, ours = (ROOT / "docs/recipes/webgym.md").read_text(), settings(("webgym",))
    ours |= {key: one.value for key, one in REMOVED.items()}
    other = [key for key, theirs in SOURCES["webgym"].items() if ours[key] != theirs]
    assert [key for key in other if f"`{key}" not in page and f" {key}=" not in page] == []


def test_an_iteration_of_gsm8k_makes_eight_optimizer_steps_as_in_the_example():
    known = load(["gsm8k"])
    assert known.rollout.episodes / known.rl.actor.ppo_mini_batch_size == 8
