"""The executable as people and scripts meet it."""

import json
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.runs import WEBGYM
from tests.executable import Command
from tests.prepare.buffer import fill
from tests.records.builders import CRASHED, trajectory
from tests.train.fake_checkpoints import published
from tests.train.gradient_batch import write_batch
from webgym_cli.loop.loop_plan import END_VARIABLE
from webgym_cli.records.dataset import PREPARED
from webgym_cli.store.buffer import append
from webgym_cli.store.run import RunDir
from webgym_cli.store.status import read_running_command
from webgym_cli.util.files import write_json

TASK = '{"id": "t", "instruction": "Go.", "start_url": "http://a.test/"}\n'


@pytest.fixture
def run(run):
    """A run with three stored trajectories."""
    fill(run, trajectory(0), trajectory(1), trajectory(2, outcome=CRASHED))
    return run


def test_ids_can_be_piped_on(webgym, run):
    ids = webgym("inspect-buffer", run.root, "--reward", "1", "-q").stdout
    assert ids.split() == ["train-0000-00000", "train-0000-00001"]
    exported = webgym("export-sharegpt", run.root, "-", "--format", "jsonl", stdin=ids)
    assert [len(json.loads(line)["images"]) for line in exported.stdout.splitlines()] == [1, 2, 1, 2]
    assert exported.stderr == "4 records\n"


def test_a_reader_that_has_seen_enough_ends_it_quietly(run):
    for number in range(3, 300):  # more than a pipe's buffer
        append(run, trajectory(number, steps=0, id=f"{number}" + "x" * 1000))
    command = f"{' '.join(WEBGYM)} inspect-buffer {run.root} -q | head -1; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (result.stdout, result.stderr) == ("train-0000-00000\n0\n", "")


@pytest.mark.parametrize(
    ("text", "words"),
    [('{"id": ', "neither an id nor JSON"), ("{}", "without id"), ("nosuch", "no trajectory 'nosuch'")],
)
def test_bad_ids_on_stdin_are_2(webgym, run, text, words):
    assert words in webgym("export-sharegpt", run.root, "-", stdin=text, code=2).stderr


def test_json_is_json_lines(webgym, run):
    (line,) = webgym("inspect-buffer", run.root, "--json").stdout.splitlines()
    assert json.loads(line)["failures"] == {"browser_crashed": 1}
    lines = webgym("config", "show", "-s", "seed=5", "--json").stdout.splitlines()
    shown = {value["key"]: value for value in map(json.loads, lines)}
    meaning = "Seed of all random choices."
    assert shown["seed"] == {"key": "seed", "value": 5, "source": "-s seed", "meaning": meaning}


def test_nothing_a_published_training_and_what_began_in_a_job_are_resumed_without_an_error(webgym, run):
    assert webgym("resume", run.root).stdout == ""
    name = published(run, 1).name
    loop = {"command": "loop", "options": {"stop_before": "3m", "eval_every": 0}, "since": "2026-01-01T00:00:00Z"}
    note = {"command": "train", "options": {}, "since": "2027-01-01T00:00:00Z", "interrupted": [loop]}
    write_json(run.state, note)
    webgym("resume", run.root, code=3)  # no data names the published model: it is to be done, and has none
    write_batch(run, Path("tiny"), name)  # the note's time is later: the clock was set back
    for options, left in ((("--dry-run",), "train"), ((), "loop")):
        webgym("resume", run.root, *options)
        assert read_running_command(run).command == left
    (line,) = [one for one in webgym("resume", run.root, "--dry-run").stderr.splitlines() if "--stop-before" in one]
    assert f"{END_VARIABLE} " in line
    plan = webgym("resume", run.root, "--dry-run", **{END_VARIABLE: str(int(time.time()) + 9999)})
    assert "--stop-before" not in plan.stderr


@pytest.mark.parametrize(("iteration", "is_done"), [(0, True), (1, False)])
def test_an_interrupted_training_is_known_by_its_kind_of_data(webgym, run, iteration, is_done):
    name = published(run, 1).name
    write_batch(run, Path("tiny"), name)
    counts = {"data_digest": "d", "train_samples": 1, "val_samples": 0, "created_at": "2026-01-01T00:00:00Z"}
    run.dataset.mkdir()
    other = {"iteration": iteration, "model_name": "model_20270101_000000", "parent": name}
    write_json(run.dataset / PREPARED, other | counts)
    write_json(run.state, {"command": "train", "options": {}, "since": "2026-01-01T00:00:00Z"})
    shown = webgym("resume", run.root, "--dry-run", code=0 if is_done else None).stderr
    assert ("nothing is left of it" in shown, "would resume `webgym train`" in shown) == (is_done, not is_done)


@pytest.mark.parametrize("ids", ["\n t \n\n", "\ufefft", ' ["t"]', '{"description": null, "task_ids": ["t"]}'])
def test_resume_knows_the_options_of_an_evaluation(webgym, tmp_path, ids):
    (tmp_path / "tasks.jsonl").write_text(TASK)
    (tmp_path / "ids.txt").write_text(ids, encoding="utf-8")
    chosen = ("-b", "tasks.jsonl", "--episodes", "1", "--subset", "ids.txt")
    webgym("eval", "http://127.0.0.1:9/v1", *chosen, "-o", "run", "-s", "rollout.policy_wait=0", code=1)
    state = read_running_command(RunDir(tmp_path / "run"))
    assert (state.command, state.options["episodes"]) == ("eval", 1)
    assert Path(state.options["subset"]) == tmp_path / "ids.txt"


def test_resume_knows_the_options_of_a_gateway(tmp_path):
    (tmp_path / "tasks.jsonl").write_text(TASK)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = ("-s", "tasks.test=tasks.jsonl", "--policy", "http://127.0.0.1:9/v1")
    gateway = Command(tmp_path, "gateway", "run", "--split", "test", "--port", port, *settings)
    gateway.until(lambda: read_running_command(RunDir(tmp_path / "run")))
    gateway.send(signal.SIGKILL)
    state = read_running_command(RunDir(tmp_path / "run"))
    kept = {name: state.options[name] for name in ("split", "port", "host")}
    assert (state.command, kept) == ("gateway", {"split": "test", "port": port, "host": "127.0.0.1"})
