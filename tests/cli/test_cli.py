"""The executable as people and scripts meet it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.terminal import rest, terminal
from tests.prepare.buffer import fill
from tests.records.builders import CRASHED, trajectory
from webgym_cli.store.buffer import append
from webgym_cli.store.run import RunDir
from webgym_cli.store.state import read_running_command

WEBGYM = [sys.executable, "-m", "webgym_cli"]
TASK = '{"id": "t", "instruction": "Go.", "start_url": "http://a.test/"}\n'


@pytest.fixture
def run(made_run):
    """A run with three stored trajectories."""
    fill(made_run, trajectory(0), trajectory(1), trajectory(2, outcome=CRASHED))
    return made_run


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
    assert result.stdout == "train-0000-00000\n0\n"
    assert result.stderr == ""


@pytest.mark.parametrize("text", ['{"id": ', "{}", "nosuch"], ids=repr)
def test_bad_ids_on_stdin_are_2(webgym, run, text):
    webgym("export-sharegpt", run.root, "-", stdin=text, code=2)


def test_json_is_json_lines(webgym, run):
    (line,) = webgym("inspect-buffer", run.root, "--json").stdout.splitlines()
    assert json.loads(line)["failures"] == {"browser_crashed": 1}
    lines = webgym("config", "show", "-s", "seed=5", "--json").stdout.splitlines()
    shown = {value["key"]: value for value in map(json.loads, lines)}
    meaning = "Seed of all random choices."
    assert shown["seed"] == {"key": "seed", "value": 5, "source": "-s seed", "meaning": meaning}


def test_no_color_is_honoured_on_a_terminal(run):
    with terminal() as (ours, theirs):
        command = [*WEBGYM, "inspect-buffer", str(run.root)]
        child = subprocess.Popen(command, stdout=theirs, env={**os.environ, "NO_COLOR": "1", "TERM": "xterm"})
        os.close(theirs)
        shown = rest(ours)
    assert child.wait(120) == 0
    assert "click-test" in shown
    assert not re.search(r"\x1b\[[0-9;]*(?:3|4|9)[0-7]m", shown)


def reading(pid, timeout=120):
    """Wait until a process reads from its stdin (x86-64: system call 0)."""
    deadline = time.monotonic() + timeout
    while not Path(f"/proc/{pid}/syscall").read_text().startswith("0 0x0 "):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=str)
def test_a_signal_has_its_code_and_a_word(run, number, code):
    child = subprocess.Popen(
        [*WEBGYM, "export-sharegpt", str(run.root), "-"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    reading(child.pid)
    child.send_signal(number)
    text = child.communicate(timeout=120)[1]
    assert child.returncode == code
    assert "  next: the same command again" in text


def test_nothing_to_resume_is_no_error(webgym, run):
    result = webgym("resume", run.root)
    assert result.stdout == ""
    assert "nothing was interrupted" in result.stderr


def test_resume_knows_the_options_of_an_evaluation(webgym, tmp_path):
    (tmp_path / "tasks.jsonl").write_text(TASK)
    (tmp_path / "ids.txt").write_text("t\n")
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
    gateway = subprocess.Popen(
        [*WEBGYM, "gateway", "run", "--split", "test", "--port", str(port), *settings], cwd=tmp_path
    )
    try:
        while (state := read_running_command(RunDir(tmp_path / "run"))) is None:
            assert gateway.poll() is None
            time.sleep(0.1)
    finally:
        gateway.kill()
        gateway.wait()
    kept = {name: state.options[name] for name in ("split", "port", "host")}
    assert (state.command, kept) == ("gateway", {"split": "test", "port": port, "host": "127.0.0.1"})
