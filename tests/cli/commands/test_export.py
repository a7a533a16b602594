"""`webgym export-sharegpt` at the command line."""

import json
from functools import partial

import pytest

from tests.forked import webgym
from tests.prepare.buffer import fill
from tests.records.builders import CRASHED, UNSOLVED, shot, trajectory
from webgym_cli.records.task import Task
from webgym_cli.store.screenshots import ScreenshotStore


@pytest.fixture
def export(tmp_path, run):
    return partial(webgym, "export-sharegpt", run.root, cwd=tmp_path)


@pytest.fixture
def run(run):
    """A run with a success on two tasks each, and a failure and a crash."""
    hard = Task(id="hard", environment="web", start_url="https://shop.example.com/", difficulty=7)
    episode = trajectory(2, outcome=UNSOLVED)
    steps = tuple(step.model_copy(update={"response": f"x{step.index}"}) for step in episode.steps)
    fill(run, trajectory(0), trajectory(1, iteration=1, task=hard), episode.model_copy(update={"steps": steps}))
    fill(run, trajectory(3, outcome=CRASHED))
    return run


def test_json_is_the_default_and_stdout_has_nothing_else(export):
    result = export()
    assert [len(record["images"]) for record in json.loads(result.stdout)] == [1, 2, 1, 2]
    assert result.stderr == "4 records\n"
    none = export("--iteration", "9", code=1)
    assert json.loads(none.stdout) == []
    assert none.stderr.splitlines()[-1].strip().startswith("next: webgym inspect-buffer ")


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (("--iteration", "1"), 2),
        (("--task", "hard"), 2),
        (("--site", "example.com"), 2),
        (("--band", "easy"), 2),
        (("--split", "test"), 0),
        (("--where", "difficulty > 1 or iteration = 0"), 4),
        (("--where", "iteration = 1", "--unit", "trajectory"), 1),
        (("--objective", "kto"), 6),
        (("--objective", "kto", "--unit", "trajectory"), 3),
        (("--objective", "dpo"), 1),
        (("-s", "algorithm_config.filter_successful_only=false"), 6),
        (("--strict",), 4),
    ],
    ids=str,
)
def test_options_choose(export, options, count):
    result = export("--format", "messages", *options, code=0 if count else 1)
    assert len(result.stdout.splitlines()) == count
    assert result.stderr.startswith(f"{count} records\n")


def test_shards_into_a_folder(export, tmp_path):
    assert export("--format", "hf", "-o", "shards", "--shard-size", 1).stdout == ""
    assert [file.name for file in (tmp_path / "shards" / "data").iterdir()] == ["train-00000-of-00001.parquet"]
    again = export("--format", "hf", "-o", "shards", code=2)
    assert "shards: there is something already\n  next: name another folder" in again.stderr


def test_what_is_damaged_is_told_and_strict_makes_it_a_failure(export, run):
    ScreenshotStore(run.screenshots).path(shot(1).sha256).unlink()
    result = export("--format", "jsonl")
    assert len(result.stdout.splitlines()) == 2
    assert result.stderr.splitlines()[0] == "2 records"
    assert f"damaged: {ScreenshotStore(run.screenshots).path(shot(1).sha256)}: the screenshot can't be" in result.stderr
    strict = export("--format", "jsonl", "--strict", code=1)
    assert strict.stdout == result.stdout
    assert "2 lines or records are damaged" in strict.stderr
    assert f"next: webgym inspect-buffer {run.root} --verify" in strict.stderr


@pytest.mark.parametrize("form", ["json", "jsonl", "openai"])
def test_a_file_of_another_origin_is_kept(tmp_path, export, form):
    out = tmp_path / "out.jsonl"
    out.write_text('{"my": "data"}\n')
    for more in ((), ("--iteration", "7")):
        assert "there is another file already" in export("--format", form, "-o", out, *more, code=2).stderr
        assert out.read_text() == '{"my": "data"}\n'
    out.unlink()
    for _ in range(2):
        export("--format", form, "-o", out)
