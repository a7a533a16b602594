"""The RL room's tests, one process a file: `role_*.py` in the train role's interpreter, where the room's code runs.

`serve_*.py` compare with vLLM, in the serve role's. `role_peers.py` finds verl beside the role's packages.
"""

import ast
import functools
import json
import os
import subprocess
from pathlib import Path

import pytest

import webgym_cli
from benchmarks.peers import VERL
from tests.stack_fixtures import needs
from webgym_cli.errors import JobError
from webgym_cli.train.process_env import DROPPED

pytestmark = pytest.mark.stack

HERE = Path(__file__).resolve().parent
START = Path(webgym_cli.__file__).parent / "train/rl/launch.py"


def functions(file: Path) -> list[str]:
    tree = ast.parse(file.read_text())
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


FILES = sorted([*HERE.glob("role_*.py"), *HERE.glob("serve_*.py")])
CASES = [(file, name) for file in FILES for name in functions(file)]


def call(role: str, *arguments, packages: Path | None = None) -> subprocess.CompletedProcess:
    """Run a role's interpreter, with a folder of further packages."""
    env = {name: value for name, value in os.environ.items() if name not in DROPPED} | {"HF_HUB_OFFLINE": "1"}
    if packages:
        env["PYTHONPATH"] = str(packages)
    return subprocess.run([needs(role), *arguments], capture_output=True, text=True, timeout=300, env=env)


def verl() -> Path | None:
    """Return where verl can be imported from; None without pip's index, so that what compares with it is skipped."""
    try:
        VERL.install()
    except JobError:
        return None
    return VERL.packages_folder


@functools.cache
def outcomes(file: Path) -> dict[str, str]:
    """Run a file's tests; return what became of each, by its name."""
    role = "serve" if file.name.startswith("serve") else "train"
    done = call(role, HERE / "runner.py", START, file, packages=verl() if file.stem == "role_peers" else None)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("file", "name"), CASES, ids=[f"{file.stem}-{name[5:]}" for file, name in CASES])
def test_in_its_role(file, name):
    outcome = outcomes(file)[name]
    if outcome.startswith("skipped: "):
        pytest.skip(outcome.removeprefix("skipped: "))
    if outcome:
        pytest.fail(outcome, pytrace=False)


def test_the_start_runs_a_module_of_the_room():
    done = call("train", START, "webgym_cli.train.rl.advantages")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_start_names_what_it_wants():
    done = call("train", START)
    assert done.returncode == 1
    assert "usage: launch.py MODULE" in done.stderr
