"""What the source promises of itself: who imports whom, who prints, what the README must name."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
import typer.main

from webgym_cli.cli.app import app
from webgym_cli.errors import EXIT_CODES

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "webgym_cli"
FILES = sorted(PACKAGE.rglob("*.py"))
STAGES = {"rollout", "prepare", "train", "serve", "rewards", "inspect", "imports", "report", "tracking"}
LAYERS = [
    {"config", "records", "errors", "util", "__init__"},
    {"agent", "environments", "scoring", "store", "jobs", "venvs", "tasks", "testing", "tools"},
    STAGES,
    {"curriculum", "loop"},
    {"cli", "__main__"},
]
"""From the ground up: a room imports from its own floor or below, a stage never from another stage."""
ALONE = [
    "jobs/guard.py",
    "jobs/reaper.py",
    "venvs/cpu_hook.py",
    "testing/tiny_model_build.py",
    "tools/sandbox.py",
    "train/rl/launch.py",
    "train/llamafactory/optimizer_carryover_script.py",
]
"""Files that run where webgym is not installed."""
SHARED = [
    *("__init__.py", "config/__init__.py", "config/suggest.py", "config/rl.py", "config/section.py"),
    *("records/__init__.py", "records/base.py", "records/checkpoint.py"),
]
"""Files that `train/rl` imports there: pydantic is all that they may need."""
STANDARD_ONLY = ["jobs/guard.py", "jobs/reaper.py", "tools/sandbox.py", "train/rl/launch.py"]


def name(file: Path) -> str:
    return str(file.relative_to(PACKAGE))


def room(file: Path) -> str:
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return parts[0]


def imports(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            found.add(node.module or "")
            if node.module == "webgym_cli":
                found |= {f"webgym_cli.{alias.name}" for alias in node.names}
    return found


def rooms_imported(file: Path) -> set[str]:
    parts = (found.split(".") for found in imports(file))
    return {part[1] for part in parts if part[0] == "webgym_cli" and len(part) > 1}


def floor(of: str) -> int:
    return next(number for number, rooms in enumerate(LAYERS) if of in rooms)


def modules(files: list[str]) -> set[str]:
    return {f"webgym_cli.{file.removesuffix('.py').replace('/', '.')}" for file in files}


def calls(file: Path, function: str) -> list[int]:
    return [
        node.lineno
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function
    ]


def test_every_room_has_its_floor():
    assert {room(file) for file in FILES} <= set().union(*LAYERS)


@pytest.mark.parametrize("file", FILES, ids=name)
def test_imports_go_one_way(file):
    mine = room(file)
    above = {other for other in rooms_imported(file) if floor(other) > floor(mine)}
    sideways = {other for other in rooms_imported(file) if mine in STAGES and other in STAGES | {"testing"} - {mine}}
    assert not above | (sideways - {mine})


@pytest.mark.parametrize("file", ALONE)
def test_what_runs_elsewhere_imports_nothing_of_ours(file):
    assert not {found for found in imports(PACKAGE / file) if found.startswith("webgym")}


@pytest.mark.parametrize("file", sorted((PACKAGE / "train/rl").glob("*.py")), ids=name)
def test_what_trains_elsewhere_imports_only_its_own_room(file):
    ours = {found for found in imports(file) if found.startswith("webgym")}
    assert {found for found in ours if not found.startswith("webgym_cli.train.rl.")} <= modules(SHARED)


@pytest.mark.parametrize("file", SHARED)
def test_what_is_shared_with_it_needs_pydantic_alone(file):
    found = imports(PACKAGE / file)
    assert {name for name in found if name.startswith("webgym")} <= modules(SHARED)
    assert {name.split(".")[0] for name in found} <= sys.stdlib_module_names | {"pydantic", "webgym_cli"}


@pytest.mark.parametrize("file", STANDARD_ONLY)
def test_what_must_start_at_once_imports_only_the_standard_library(file):
    assert {found.split(".")[0] for found in imports(PACKAGE / file)} <= sys.stdlib_module_names


@pytest.mark.parametrize("file", FILES, ids=name)
def test_only_the_output_prints_and_nobody_pickles(file):
    if name(file) != "cli/output.py" and name(file) not in ALONE:
        assert calls(file, "print") == []
    assert not {found.split(".")[0] for found in imports(file)} & {"pickle", "dill", "cloudpickle", "shelve", "marshal"}


@pytest.mark.parametrize("file", FILES, ids=name)
def test_no_except_is_bare(file):
    handlers = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ExceptHandler)]
    assert all(handler.type is not None for handler in handlers)


@pytest.mark.parametrize("file", FILES, ids=name)
def test_torch_loads_nothing_but_weights(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
            assert any(
                keyword.arg == "weights_only" and ast.unparse(keyword.value) == "True" for keyword in node.keywords
            )


@pytest.mark.parametrize("file", FILES, ids=name)
def test_files_are_small_and_folders_flat(file):
    assert len(file.read_text().splitlines()) <= 300
    assert len(file.relative_to(PACKAGE).parts) <= 3


def commands() -> list[str]:
    group = typer.main.get_command(app)
    return sorted(group.commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", commands())
def test_the_readme_names_every_command(command):
    assert f"webgym {command}" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("code", EXIT_CODES)
def test_the_readme_names_every_exit_code(code):
    lines = (ROOT / "README.md").read_text().splitlines()
    assert any(str(code) in line.replace("|", " ").replace("`", " ").split() for line in lines)
