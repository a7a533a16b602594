import json
from collections import Counter
from functools import partial

import pytest

from tests import forked
from tests.tasks.lines import webgym, write
from webgym_cli.records.task import Task
from webgym_cli.tasks.source import open_tasks


@pytest.fixture
def tasks(tmp_path):
    return partial(forked.webgym, "tasks", cwd=tmp_path)


@pytest.fixture
def file(tmp_path):
    """Ten easy, ten medium and ten hard tasks."""
    return write(tmp_path / "t.jsonl", *(webgym(number, difficulty=(1, 5, 9)[number % 3]) for number in range(30)))


def bands(reply):
    return Counter(str(Task.model_validate_json(line).band) for line in reply.stdout.splitlines())


def test_a_clean_file_is_0(tasks, file):
    task_list = tasks("check", file)
    assert task_list.stderr == ""
    rows = dict(line.split("\t") for line in task_list.stdout.splitlines())
    assert rows["tasks"] == rows["sites"] == rows["rubrics"] == "30"
    assert (rows["band hard"], rows["bad lines"]) == ("10", "0")


def test_every_bad_line_of_every_file_is_told_and_that_is_2(tasks, file, tmp_path):
    write(tmp_path / "bad.jsonl", "{", webgym(99), webgym(website="ftp://a"), webgym(difficulty=-1))
    task_list = tasks("check", "bad.jsonl", file, code=2)
    first = task_list.stdout.splitlines()[:3]
    assert [line.split(": ")[0] for line in first] == ["bad.jsonl:1", "bad.jsonl:3", "bad.jsonl:4"]
    assert "website: 'ftp://a' is neither http nor https" in first[1]
    assert task_list.stderr == f"webgym: 3 bad lines\n  next: fix them, then: webgym tasks check bad.jsonl {file}\n"


def test_the_check_as_json(tasks, tmp_path):
    write(tmp_path / "bad.jsonl", webgym(1), "[]")
    bad, report = map(json.loads, tasks("check", "bad.jsonl", "--json", code=2).stdout.splitlines())
    assert bad == {"event": "bad_line", "file": "bad.jsonl", "line": 2, "reason": "a task must be a JSON object"}
    assert (report["tasks"], report["bad_lines"], report["by_band"]) == (1, 1, {"easy": 1})


def test_the_same_seed_draws_the_same_sample_which_can_be_piped_into_the_check(tasks, file, tmp_path):
    sample = tasks("sample", file, "-n", 9, "--seed", 4)
    assert sample.stderr == ""
    first = sample.stdout
    assert tasks("check", "-", stdin=first).stdout.splitlines()[0] == "tasks\t9"
    assert first == tasks("sample", "-n", 9, "-s", f"tasks.train={file}", "-s", "seed=4").stdout
    assert first != tasks("sample", file, "-n", 9).stdout
    (tmp_path / "sample.jsonl").write_text(first)
    drawn, all_ = open_tasks(str(tmp_path / "sample.jsonl")), open_tasks(str(file))
    by_id = {task.id: task for task in all_.read(range(30))}
    assert all(task == by_id[task.id] for task in drawn.read(range(9)))


def test_a_sample_by_ratio(tasks, file, tmp_path):
    shares = {"easy": 2, "medium": 5, "hard": 3}
    assert bands(tasks("sample", file, "-n", 10, "--ratio", "easy=2,medium=5,hard=3")) == shares
    (tmp_path / "ratio.yaml").write_text("tasks: {sampler: ratio, difficulty_ratio: {easy: 2, medium: 5, hard: 3}}\n")
    assert bands(tasks("sample", file, "-n", 10, "-c", "ratio.yaml")) == shares
    assert bands(tasks("sample", file, "-n", 10, "-c", "ratio.yaml", "--ratio", "hard=1")) == {"hard": 10}
    everything = bands(tasks("sample", file, "-n", 30, "-c", "ratio.yaml", "--sampler", "uniform"))
    assert everything == {"easy": 10, "medium": 10, "hard": 10}


def test_a_sample_of_a_band_without_a_site(tasks, file):
    task_list = tasks("sample", file, "-n", 30, "--band", "easy", "--exclude-site", "https://www.shop3.co.uk/x")
    assert bands(task_list) == {"easy": 9} and '"insta-3"' not in task_list.stdout
    assert task_list.stderr == "9 tasks: there are no more that fit\n"


def test_a_band_of_the_ratio_without_tasks_is_told(tasks):
    task_list = tasks("sample", "miniwob:all", "-n", 5, "--ratio", "easy=1,hard=1")
    assert bands(task_list) == {"easy": 5}
    assert "band hard has no task" in task_list.stderr


@pytest.mark.parametrize(
    ("folder", "words"),
    [("cv", ""), ("gone", "there is no file"), ("/etc", "is not in the task file's folder"), ([1], "paths are needed")],
)
def test_folders_of_uploads_are_checked(tasks, tmp_path, folder, words):
    (tmp_path / "cv").mkdir()
    file = tmp_path / "tasks.jsonl"
    task = {"id": "a", "instruction": "Upload it.", "start_url": "https://a.com/", "upload_folder": folder}
    file.write_text(json.dumps(task) + "\n")
    task_list = tasks("check", file, code=2 if words else 0)
    assert (f"{file}:1: upload_folder: " in task_list.stdout) is bool(words) and words in task_list.stdout
    if folder == "/etc":
        tasks("check", file, "-s", 'rollout.file_folders=["/etc"]')
