import json

import pytest

from tests.environments.webarena.webarena_records import record
from tests.forked import webgym
from webgym_cli.tasks.source import open_tasks

SITES = ["--site", "shopping=http://shop.test:7770"]


@pytest.fixture
def convert(tmp_path):
    (tmp_path / "raw.json").write_text(
        json.dumps([record(task_id=1), record(task_id=2, intent="Find another", eval=None)])
    )

    def call(*arguments):
        return webgym("tasks", "convert", *arguments, cwd=tmp_path)

    return call


def test_the_tasks_are_a_task_file(convert, tmp_path):
    said = convert("raw.json", "--format", "webarena", *SITES, "-o", "out.jsonl")
    note = "2 tasks, 1 of them generated: only a reward model can score those\n"
    assert (said.returncode, said.stdout, said.stderr) == (0, "", note)
    tasks = open_tasks(str(tmp_path / "out.jsonl"))
    assert [(task.id, task.environment, task.start_url) for task in tasks.read(range(len(tasks)))] == [
        ("1", "webarena", "http://shop.test:7770"),
        ("2", "webarena", "http://shop.test:7770"),
    ]
    assert convert("raw.json", "--format", "webarena", *SITES).stdout == (tmp_path / "out.jsonl").read_text()


def test_addresses_may_come_from_the_settings(convert, tmp_path):
    (tmp_path / "sites.yaml").write_text("webarena: {shopping: {url: 'http://shop.test:1/'}}")
    of_file = convert("raw.json", "--format", "webarena", "-c", "sites.yaml")
    assert [json.loads(line)["start_url"] for line in of_file.stdout.splitlines()] == ["http://shop.test:1"] * 2
    both = convert("raw.json", "--format", "webarena", "-c", "sites.yaml", *SITES)
    assert json.loads(both.stdout.splitlines()[0])["start_url"] == "http://shop.test:7770"


def test_a_bad_record_is_2_and_nothing_is_written(convert, tmp_path):
    (tmp_path / "raw.json").write_text(json.dumps([record(), record(sites=[])]))
    said = convert("raw.json", "--format", "webarena", *SITES, "-o", "out.jsonl")
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.startswith("raw.json:2: sites: ")
    assert "webgym: raw.json: 1 bad record; nothing was written" in said.stderr
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["raw.json"], "--format"),
        (["raw.json", "--format", "other"], "--format"),
        (["none.json", "--format", "webarena"], "none.json: can't be read"),
        (["raw.json", "--format", "webarena"], "__SHOPPING__ is not known (give the address of the site shopping)"),
        (
            ["raw.json", "--format", "webarena", "--site", "bank=http://a.test"],
            "--site: 'bank=http://a.test' is no site",
        ),
        (["raw.json", "--format", "webarena", "--site", "map"], "--site: 'map' is no site with its address"),
        (["raw.json", "--format", "webarena", "--site", "map=host:3"], "--site: 'map=host:3' is no site"),
    ],
)
def test_wrong_usage_is_2_and_says_what(convert, arguments, reason):
    said = convert(*arguments)
    assert said.returncode == 2
    assert reason in said.stderr
    assert "Traceback" not in said.stderr
