"""`webgym export-sharegpt` at the command line."""

import json
import subprocess

import pytest

from tests.cli.runs import WEBGYM
from tests.forked import webgym
from tests.records.builders import CRASHED, UNSOLVED, shot, store_images, trajectory
from webgym_cli.config.load import load
from webgym_cli.records.task import Task
from webgym_cli.store.buffer import append
from webgym_cli.store.run import RunDir, create_or_open
from webgym_cli.store.screenshots import ScreenshotStore


@pytest.fixture
def export(tmp_path, run):
    def call(*arguments, **options):
        return webgym("export-sharegpt", run.root, *arguments, cwd=tmp_path, **options)

    return call


@pytest.fixture
def run(tmp_path):
    """A run with a success on two tasks each, and a failure and a crash."""
    run_dir = RunDir(tmp_path / "run")
    create_or_open(run_dir, load())
    hard = Task(id="hard", environment="web", start_url="https://shop.example.com/", difficulty=7)
    episode = trajectory(2, outcome=UNSOLVED)
    steps = tuple(step.model_copy(update={"response": f"x{step.index}"}) for step in episode.steps)
    for item in (
        trajectory(0),
        trajectory(1, iteration=1, task=hard),
        episode.model_copy(update={"steps": steps}),
        trajectory(3, outcome=CRASHED),
    ):
        store_images(run_dir, item)
        append(run_dir, item)
    return run_dir


def test_json_is_the_default_and_stdout_has_nothing_else(export):
    result = export()
    assert result.returncode == 0
    assert [len(record["images"]) for record in json.loads(result.stdout)] == [1, 2, 1, 2]
    assert result.stderr == "4 records\n"


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
    ],
    ids=str,
)
def test_options_choose(export, options, count):
    result = export("--format", "messages", *options)
    assert result.returncode == (0 if count else 1), result.stderr
    assert len(result.stdout.splitlines()) == count
    assert result.stderr.startswith(f"{count} records\n")


def test_shards_into_a_folder(export, tmp_path):
    result = export("--format", "hf", "-o", "shards", "--shard-size", 1)
    assert (result.returncode, result.stdout) == (0, "")
    assert [file.name for file in (tmp_path / "shards" / "data").iterdir()] == ["train-00000-of-00001.parquet"]
    again = export("--format", "hf", "-o", "shards")
    assert again.returncode == 2
    assert "shards: there is something already\n  next: name another folder" in again.stderr


def test_what_is_damaged_is_told_and_strict_makes_it_a_failure(export, run):
    ScreenshotStore(run.screenshots).path(shot(1).sha256).unlink()
    result = export("--format", "jsonl")
    assert (result.returncode, len(result.stdout.splitlines())) == (0, 2)
    assert result.stderr.splitlines()[0] == "2 records"
    assert f"damaged: {ScreenshotStore(run.screenshots).path(shot(1).sha256)}: the screenshot can't be" in result.stderr
    strict = export("--format", "jsonl", "--strict")
    assert (strict.returncode, strict.stdout) == (1, result.stdout)
    assert "2 lines or records are damaged" in strict.stderr
    assert f"next: webgym inspect-buffer {run.root} --verify" in strict.stderr


def test_strict_is_content_with_a_whole_buffer(export):
    assert export("--strict").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "reply"),
    [
        (("nosuch",), "no trajectory 'nosuch'"),
        (("--where", "stepz > 1"), "is no condition"),
        (("--format", "hf"), "--format hf makes a folder\n  next: add -o DIR"),
        (("--objective", "dpo", "--unit", "trajectory"), "it has no --unit trajectory"),
        (("--shard-size", "0"), "--shard-size"),
        (("--format", "csv"), "--format"),
        (("--shard-size", "5"), "--shard-size has no effect"),
        (("--max-pairs-per-task", "5"), "--max-pairs-per-task has no effect"),
    ],
    ids=str,
)
def test_wrong_usage_is_2_and_writes_nothing(export, tmp_path, arguments, reply):
    result = export(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert reply in result.stderr
    assert "Traceback" not in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_reader_that_has_seen_enough_ends_it_quietly(export, run, tmp_path):
    for number in range(4, 60):
        append(run, trajectory(number))
    command = f"{' '.join(WEBGYM)} export-sharegpt {run.root} --format jsonl | head -1 | wc -l; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (result.stdout, result.stderr) == ("1\n0\n", "")


@pytest.mark.parametrize("form", ["json", "jsonl", "openai"])
def test_a_file_of_another_origin_is_kept(tmp_path, export, form):
    out = tmp_path / "out.jsonl"
    for text, more in (('{"my": "data"}\n', ()), ('{"my": "data"}\n', ("--iteration", "7"))):
        out.write_text(text)
        result = export("--format", form, "-o", out, *more)
        assert result.returncode == 2 and "there is another file already" in result.stderr
        assert out.read_text() == text
    out.unlink()
    for _ in range(2):
        assert export("--format", form, "-o", out).returncode == 0


def test_an_export_of_nothing_fails_and_names_the_next_command(export):
    result = export("--iteration", "9")
    assert (result.returncode, json.loads(result.stdout)) == (1, [])
    assert result.stderr.splitlines()[-1].strip().startswith("next: webgym inspect-buffer ")
