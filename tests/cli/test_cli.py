"""The executable as people and scripts meet it."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer.main

from tests.records.made import CRASHED, store_images, trajectory
from webgym_cli.cli.app import app
from webgym_cli.config.model import Settings
from webgym_cli.store.buffer import append
from webgym_cli.store.lock import locked
from webgym_cli.store.run import RunDir, create_or_open

WEBGYM = [sys.executable, "-m", "webgym_cli"]
HEAVY = ["torch", "vllm", "transformers", "playwright", "openai", "pyarrow", "numpy", "PIL", "huggingface_hub"]


@pytest.fixture
def webgym(tmp_path):
    def call(*arguments, **options):
        return subprocess.run(
            [*WEBGYM, *map(str, arguments)], capture_output=True, text=True, cwd=tmp_path, timeout=60, **options
        )

    return call


@pytest.fixture
def run(tmp_path):
    """A run with three stored trajectories."""
    made = RunDir(tmp_path / "run")
    create_or_open(made, Settings())
    for found in (trajectory(0), trajectory(1), trajectory(2, outcome=CRASHED)):
        store_images(made, found)
        append(made, found)
    return made


def leaves():
    for name, command in typer.main.get_command(app).commands.items():
        for below, leaf in getattr(command, "commands", {"": command}).items():
            yield f"{name} {below}".strip(), leaf


@pytest.mark.parametrize(("name", "command"), list(leaves()), ids=[name for name, _ in leaves()])
def test_the_help_of_each_command_has_an_example(name, command):
    assert "Example" in command.help
    assert f"webgym {name}" in command.help
    assert all(getattr(option, "help", "") for option in command.params)


def test_help_names_the_exit_codes_and_loads_nothing_heavy(webgym):
    said = webgym("--help")
    assert said.returncode == 0
    assert "75 the run is locked" in " ".join(said.stdout.split())
    code = (
        "import sys\nsys.argv = ['webgym', '--help']\nfrom webgym_cli.cli.main import main\n"
        f"try: main()\nexcept SystemExit: sys.stderr.write(str([m for m in {HEAVY} if m in sys.modules]))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stderr == "[]"


@pytest.mark.parametrize(
    "arguments", [["rollout", "--nosuch"], ["nosuch"], ["rollout"], ["config", "show", "-s", "x=1"]]
)
def test_wrong_usage_is_2(webgym, arguments):
    said = webgym(*arguments)
    assert (said.returncode, said.stdout) == (2, "")
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize(
    "arguments",
    [["prepare"], ["resume"], ["inspect-buffer"], ["export-sharegpt"], ["train"], ["config", "show", "--run"]],
    ids=" ".join,
)
def test_a_run_that_is_not_there_is_3_and_names_the_next_command(webgym, arguments):
    said = webgym(*arguments, "none")
    assert (said.returncode, said.stdout) == (3, "")
    assert re.search(r"^  next: webgym \w+ ", said.stderr, re.MULTILINE)


def test_a_locked_run_is_75(webgym, run):
    with locked(run, "train runs/a"):
        said = webgym("rollout", run.root, "--policy", "oracle")
    assert said.returncode == 75
    assert "webgym train runs/a" in said.stderr


def test_ids_can_be_piped_on(webgym, run):
    ids = webgym("inspect-buffer", run.root, "--reward", "1", "-q").stdout
    assert ids.split() == ["train-0000-00000", "train-0000-00001"]
    exported = webgym("export-sharegpt", run.root, "-", "--format", "jsonl", input=ids)
    assert [len(json.loads(line)["images"]) for line in exported.stdout.splitlines()] == [1, 2, 1, 2]
    assert exported.stderr == "4 records\n"


def test_a_reader_that_has_seen_enough_ends_it_quietly(run):
    for number in range(3, 300):  # more than a pipe's buffer
        append(run, trajectory(number, steps=0, id=f"{number}" + "x" * 1000))
    command = f"{' '.join(WEBGYM)} inspect-buffer {run.root} -q | head -1; echo ${{PIPESTATUS[0]}}"
    said = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert said.stdout == "train-0000-00000\n0\n"
    assert said.stderr == ""


@pytest.mark.parametrize("text", ['{"id": ', "{}", "nosuch"], ids=repr)
def test_bad_ids_on_stdin_are_2(webgym, run, text):
    said = webgym("export-sharegpt", run.root, "-", input=text)
    assert said.returncode == 2
    assert "Traceback" not in said.stderr


def test_json_is_json_lines(webgym, run):
    (line,) = webgym("inspect-buffer", run.root, "--json").stdout.splitlines()
    assert json.loads(line)["failures"] == {"browser_crashed": 1}
    lines = webgym("config", "show", "-s", "seed=5", "--json").stdout.splitlines()
    shown = {value["key"]: value for value in map(json.loads, lines)}
    assert shown["seed"] == {"key": "seed", "value": 5, "source": "-s seed"}


def test_a_dry_run_prints_the_plan_and_writes_nothing(webgym, tmp_path):
    said = webgym("rollout", tmp_path / "new", "-c", "demo", "--episodes", "5", "-n")
    assert (said.returncode, json.loads(said.stdout)["owed"]) == (0, 5)
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_gets_no_escape_codes(webgym, run):
    for arguments in (["inspect-buffer", run.root], ["config", "show"], ["--help"], ["rollout", run.root, "-n"]):
        said = webgym(*arguments, env={**os.environ, "FORCE_COLOR": "", "TERM": "xterm-256color"})
        assert "\x1b" not in said.stdout + said.stderr


def test_no_color_is_honoured_on_a_terminal(run):
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [*WEBGYM, "inspect-buffer", str(run.root)], stdout=theirs, env={**os.environ, "NO_COLOR": "1", "TERM": "xterm"}
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:  # a terminal whose other side is closed
        pass
    os.close(ours)
    assert child.wait(30) == 0
    assert b"click-test" in shown
    assert not re.search(rb"\x1b\[[0-9;]*(?:3|4|9)[0-7]m", shown)


def reading(pid, timeout=30):
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
    said = child.communicate(timeout=30)[1]
    assert child.returncode == code
    assert "webgym resume RUN" in said


def test_nothing_to_resume_is_no_error(webgym, run):
    said = webgym("resume", run.root)
    assert (said.returncode, said.stdout) == (0, "")
    assert "nothing was interrupted" in said.stderr
