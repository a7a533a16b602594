"""Paraphrases of templates by a scripted model over real HTTP: what is kept, and what is asked again."""

import json

import pytest
import yaml

from tests.forked import webgym
from tests.rewards.scripted_judge import ScriptedReply
from webgym_cli.config.load import load
from webgym_cli.curriculum.journal import AnswerJournal
from webgym_cli.curriculum.paraphrase import Paraphrasing, list_fixed_texts
from webgym_cli.errors import WebGymError
from webgym_cli.tasks.expand import TaskTemplates, expand_templates

CLOSE = {
    "id": "close",
    "environment": "web",
    "start_url": "http://desk/",
    "instruction": "Set '{title}' to closed for {user}@desk.test.",
    "check": "ticket",
    "status": "closed",
}
OPEN = CLOSE | {"id": "open-{title}", "instruction": 'Open "{title}".', "status": "open"}
GIVEN = {
    "parameters": {"title": ["A b", "C"], "user": ["ada"]},
    "held_out": {"title": ["C"]},
    "templates": [CLOSE, OPEN],
}


def proposed(*texts):
    return json.dumps({"tasks": texts})


@pytest.fixture
def work(tmp_path, server):
    def make(count=2):
        settings = load(
            overrides=["generate.retries=0", "generate.concurrency=1", f"generate.base_url={server.base_url}"]
        )
        journal = AnswerJournal(tmp_path / "tasks.jsonl.requests.jsonl")
        return Paraphrasing(TaskTemplates.model_validate(GIVEN), count, settings.generate, journal)

    return make


@pytest.mark.parametrize(
    ("template", "fixed"),
    [
        (CLOSE, {"{title}", "closed", "{user}@desk.test", "{user}"}),
        (OPEN, {"{title}"}),
        ({"instruction": "Don't set {a}'s age to 7 or 'x y'.", "age": 7, "site": "age"}, {"7", "x y", "{a}'s", "{a}"}),
        ({"instruction": ""}, set()),
    ],
)
def test_values_and_quoted_texts_are_fixed(template, fixed):
    assert set(list_fixed_texts(template)) == fixed


async def test_a_paraphrase_without_a_value_is_dropped_and_the_others_become_templates(work, server, tmp_path):
    good = "Please have '{title}' closed: {user}@desk.test asked."
    without = "Set '{title}' to done for {user}@desk.test."
    invented = good + " {person}"
    server.script(proposed(without, good, good.upper(), "Close it for {user}.", invented, f" {good}  "), job="rephrase")
    server.script(proposed('"{title}": open it.', 'Open "{title}" now.', 'A third "{title}" to open.'), job="rephrase")
    doing = work()
    result = await doing.execute()
    assert [(one["id"], one["instruction"]) for one in result.templates] == [
        ("close", CLOSE["instruction"]),
        ("close-p1", good),
        ("open-{title}", OPEN["instruction"]),
        ("open-{title}-p1", '"{title}": open it.'),
        ("open-{title}-p2", 'Open "{title}" now.'),
    ]
    assert len(doing.dropped) == 5 and all("template close:" in line for line in doing.dropped)
    assert [question.data["keep"] for question in server.requests] == [list_fixed_texts(one) for one in (CLOSE, OPEN)]
    expanded = expand_templates(tmp_path / "templates.yaml", result)
    assert {task.id for task in expanded.train} == {
        "close-a-b-ada",
        "close-p1-a-b-ada",
        "open-A b",
        "open-A b-p1",
        "open-A b-p2",
    }
    assert len(expanded.test) == 5 and all("C" in task.instruction for task in expanded.test)


async def test_only_what_was_not_answered_is_asked_again(work, server):
    server.script(proposed("Close '{title}' as closed for {user}@desk.test."), job="rephrase")
    server.script(ScriptedReply(status=500), job="rephrase")
    with pytest.raises(WebGymError, match=r"template open-\{title\}"):
        await work().execute()
    server.script(proposed('Open the "{title}".'), job="rephrase")
    result = await work().execute()
    assert (len(server.requests), len(result.templates)) == (3, 4)


def test_the_command_writes_the_tasks_of_the_paraphrases_too(tmp_path):
    (tmp_path / "templates.yaml").write_text(yaml.safe_dump(GIVEN))
    command = ("tasks", "expand", "templates.yaml", "-o", "tasks.jsonl", "--paraphrases", "2")
    assert json.loads(webgym(*command, "--dry-run", "--json", cwd=tmp_path).stdout)["requests"] == 2
    assert [file.name for file in tmp_path.iterdir()] == ["templates.yaml"]
    webgym(*command, "-s", "generate.base_url=scripted", cwd=tmp_path)
    assert len((tmp_path / "tasks.jsonl").read_text().splitlines()) == 6
