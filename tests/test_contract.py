"""What the source promises of itself: who imports whom, who prints, what the pages must name."""

import ast
import re
import sys
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
import typer.main
import yaml

from tests.app import app
from tests.tables import each
from webgym_cli.errors import EXIT_CODES

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "webgym_cli"
FILES = sorted(PACKAGE.rglob("*.py"))
STAGES = {
    *("rollout", "rewards", "prepare", "train", "serve", "tracking"),
    *("inspect", "imports", "report", "evaluate"),
}
LAYERS = [
    {"records", "errors", "util", "__init__"},
    {"config"},
    {"jobs", "store", "venvs", "trainer"},
    {"tools", "scoring", "tasks"},
    {"agent"},
    {"environments"},
    {*STAGES, "testing"},
    {"compare", "curriculum", "gateway", "env_server", "record"},
    {"loop"},
    {"cli", "read", "__main__"},
]
"""From the ground up: a room imports from its own floor or below, a stage never from another stage."""
ENVIRONMENT_FOLDERS = {"miniwob", "web", "webarena", "sites", "tools"}
"""Names of built-in environments; each has a folder of its own in `environments/`."""
ALONE = [
    "jobs/guard.py",
    "venvs/cpu_hook.py",
    "venvs/gpu_report.py",
    "testing/tiny_model_build.py",
    "tools/sandbox.py",
    "tools/sandbox_script.py",
    "train/llamafactory/optimizer_carryover_script.py",
]
"""Files that run where webgym is not installed."""
STANDARD_ONLY = ["jobs/guard.py", "tools/sandbox.py", "tools/sandbox_script.py"]


def name(file: Path) -> str:
    return str(file.relative_to(PACKAGE))


@cache
def trees() -> dict[str, ast.Module]:
    """Return each file of the package, parsed once."""
    return {name(file): ast.parse(file.read_text()) for file in FILES}


@cache
def nodes(file: str) -> list[ast.AST]:
    """Return all parts of a file, of which most tests look at each."""
    return list(ast.walk(trees()[file]))


def imports(file: str) -> set[str]:
    texts: set[str] = set()
    for node in nodes(file):
        if isinstance(node, ast.Import):
            texts |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            texts.add("." * node.level + (node.module or ""))
            if node.module == "webgym_cli":
                texts |= {f"webgym_cli.{alias.name}" for alias in node.names}
    return texts


@cache
def all_imports() -> dict[str, set[str]]:
    """Return what each file imports."""
    return {file: imports(file) for file in trees()}


def room(file: str) -> str:
    return file.removesuffix(".py").split("/")[0]


def rooms_imported(file: str) -> set[str]:
    parts = (text.split(".") for text in all_imports()[file])
    return {part[1] for part in parts if part[0] == "webgym_cli" and len(part) > 1}


def floor(of: str) -> int:
    return next(number for number, rooms in enumerate(LAYERS) if of in rooms)


def modules(files: list[str]) -> set[str]:
    return {f"webgym_cli.{file.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}" for file in files}


@cache
def calls() -> dict[str, list[tuple[str, ast.Call]]]:
    """Return the calls of each function, by its name or `module.name`, with their files."""
    by_function = defaultdict(list)
    for file in trees():
        for node in nodes(file):
            match node:
                case ast.Call(func=ast.Name(id=function)):
                    by_function[function].append((file, node))
                case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=function)):
                    by_function[f"{owner}.{function}"].append((file, node))
    return by_function


@cache
def files_by_module() -> dict[str, str]:
    return {module: file for file in trees() for module in modules([file])}


def test_every_room_has_its_floor():
    assert set(map(room, trees())) <= set().union(*LAYERS)


def test_imports_go_one_way():
    offenders = []
    for file in trees():
        mine, imported = room(file), rooms_imported(file)
        offenders += [f"{file} imports the higher {other}" for other in imported if floor(other) > floor(mine)]
        beside = imported & (STAGES | {"testing"}) - {mine} if mine in STAGES | {"testing"} else set()
        offenders += [f"{file} imports {other} beside it" for other in beside]
    assert not offenders, "\n".join(sorted(offenders))


def test_no_two_rooms_import_each_other():
    pairs: dict[tuple[str, str], str] = {}
    for file in trees():
        pairs |= {(room(file), other): file for other in rooms_imported(file) - {room(file)}}
    offenders = [
        f"{one} <-> {other}: {pairs[one, other]}, {pairs[other, one]}"
        for one, other in pairs
        if one < other and (other, one) in pairs
    ]
    assert not offenders, "\n".join(offenders)


@cache
def imported_files(file: str) -> set[str]:
    """Return the files that a file imports anywhere in it, for types and within functions too."""
    names = files_by_module()
    texts = set()
    for node in nodes(file):
        if isinstance(node, ast.Import):
            texts |= {names[alias.name] for alias in node.names if alias.name in names}
        elif isinstance(node, ast.ImportFrom):
            parts = [(f"{node.module}.{alias.name}", node.module) for alias in node.names]
            texts |= {names[next(part for part in of if part in names)] for of in parts if set(of) & names.keys()}
    return texts - {file}


def test_no_file_imports_itself_by_way_of_others():
    left = {file: imported_files(file) for file in trees()}
    # Files that import no other file of the rest are in no circle, and neither are those that no other one imports.
    while ends := {
        file for file in left if not left[file] & left.keys() or not any(file in other for other in left.values())
    }:
        left = {file: texts for file, texts in left.items() if file not in ends}
    assert not left, sorted(left)


def test_no_two_folders_import_each_other():
    pairs: dict[tuple[str, str], str] = {}
    for file in trees():
        mine = file.rpartition("/")[0]
        if Path(file).stem not in {"__init__", "__main__"}:
            others = {text.rpartition("/")[0] for text in imported_files(file)} - {mine}
            pairs |= {(mine, other): file for other in others}
    both = {pair for pair in pairs if pair[0] < pair[1] and pair[::-1] in pairs}
    assert not both, {pair: (pairs[pair], pairs[pair[::-1]]) for pair in both}


def test_only_the_commands_that_need_a_tiny_model_or_sites_import_testing():
    allowed = {"cli/commands/init_model.py", "cli/gpu_round.py"}
    assert not {file for file in trees() if "testing" in rooms_imported(file) - {room(file)}} - allowed


def test_only_the_fixture_sites_import_themselves():
    """They register as an environment and as WebArena's fixture, each by its location."""
    folder = "environments/fixture_sites"
    users = {file for file in trees() if any(text.startswith(folder) for text in imported_files(file))}
    assert not {file for file in users if not file.startswith(folder)}


def test_no_file_switches_on_an_environment_s_name():
    """Only an environment's own folder knows its name; the others ask its `EnvironmentSpec`."""
    offenders = []
    for file in trees():
        if file.startswith("environments/") and file.count("/") == 2:
            continue
        for node in nodes(file):
            if isinstance(node, ast.Compare | ast.MatchValue):
                names = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
                if names & ENVIRONMENT_FOLDERS and "environment" in ast.unparse(node):
                    offenders.append(f"{file}:{node.lineno}: {ast.unparse(node)}")
    assert not offenders, "\n".join(offenders)


ENVIRONMENT_NAMES = {
    "tasks/registry.py": "the registry itself",
    "records/task.py": "the environment of stored tasks that name none",
    "venvs/doctor.py": "the name of the package from PyPI",
}
"""Files outside the environments that may write `miniwob` or `webarena`, and why."""


def test_no_file_names_a_benchmark_s_environment():
    """`web`, `sites` and `tools` are other things' names too: of these only `environment="web"` is looked for."""
    offenders = []
    for file in trees():
        if file.startswith("environments/") or file in ENVIRONMENT_NAMES:
            continue
        for node in nodes(file):
            named = isinstance(node, ast.keyword) and node.arg == "environment"
            names = ENVIRONMENT_FOLDERS if named else {"miniwob", "webarena"}
            constant = node.value if isinstance(node, ast.keyword) else node
            if isinstance(constant, ast.Constant) and constant.value in names:
                offenders.append(f"{file}:{constant.lineno}: {constant.value}")
    assert not offenders, "\n".join(offenders)


DATA_KINDS = {"dataset", "batch", "steps", "transitions"}
"""Names of the kinds of training data: backends name theirs, nobody compares with one."""
DATA_RECORDS = {"RlPlan", "PreparePlan", "RlData", "Prepared"}
"""Their plans and records: outside their folder code asks `PreparedData`."""


def test_no_file_switches_on_a_kind_of_training_data():
    switches = []
    for file in trees():
        for node in nodes(file):
            if isinstance(node, ast.Compare | ast.MatchValue):
                names = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
                if names & DATA_KINDS and ".data" in ast.unparse(node):
                    switches.append((file, node))
    for file, call in calls()["isinstance"]:
        if DATA_RECORDS & set(re.findall(r"\w+", ast.unparse(call.args[1]))):
            switches.append((file, call))
    offenders = [
        f"{file}:{node.lineno}: {ast.unparse(node)}" for file, node in switches if not file.startswith("prepare/")
    ]
    assert not offenders, "\n".join(offenders)


def test_no_import_is_relative():
    assert not [file for file, texts in all_imports().items() if any(module.startswith(".") for module in texts)]


@each("file", ALONE)
def test_what_runs_elsewhere_imports_nothing_of_ours(file):
    assert not {text for text in all_imports()[file] if text.startswith("webgym")}


def reached(start: set[str]) -> set[str]:
    """Return the files of ours that these files import, directly or not."""
    names = files_by_module()
    texts, left = set(start), list(start)
    while left:
        imported = {names[module] for module in all_imports()[left.pop()] if module in names}
        left += imported - texts
        texts |= imported
    return texts


TRAINER = {name(file) for file in FILES if room(name(file)) == "trainer"}


def test_the_trainer_needs_little_of_webgym():
    """Its interpreter has torch, transformers, pydantic and DeepSpeed, not webgym's own requirements."""
    ours = reached(TRAINER) - TRAINER
    assert {room(file) for file in ours} <= {"__init__", "config", "errors", "records", "util"}
    others = {module.split(".")[0] for file in ours for module in all_imports()[file]}
    assert others <= {*sys.stdlib_module_names, "pydantic", "webgym_cli"}


def test_nobody_imports_the_trainer():
    assert {file for file in trees() if "trainer" in rooms_imported(file)} <= TRAINER


@pytest.mark.parametrize("file", STANDARD_ONLY)
def test_what_must_start_at_once_imports_only_the_standard_library(file):
    assert {text.split(".")[0] for text in all_imports()[file]} <= sys.stdlib_module_names


def test_only_the_output_prints():
    assert {file for file, _ in calls()["print"]} <= {"cli/output.py", *ALONE}


def test_nobody_pickles_and_one_file_reads_pickles_as_data():
    banned = {"pickle", "dill", "cloudpickle", "shelve", "marshal"}
    users = {file for file, texts in all_imports().items() if {module.split(".")[0] for module in texts} & banned}
    assert users == {"imports/pickled.py"}
    # what loads, and what makes an unpickler that would import what it is told to
    for function in ("pickle.load", "pickle.loads", "pickle.Unpickler", "pickle._Unpickler"):
        assert not calls().get(function)


def test_no_except_is_bare():
    assert not [
        f"{file}:{node.lineno}"
        for file in trees()
        for node in nodes(file)
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]


def test_torch_loads_nothing_but_weights():
    offenders = []
    for file, call in calls()["torch.load"]:
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        offenders += [f"{file}:{call.lineno}"] * (given.get("weights_only") != "True")
    assert not offenders


def test_files_are_small_and_folders_flat():
    assert not {name(file) for file in FILES if len(file.read_text().splitlines()) > 300}
    assert not {file for file in trees() if file.count("/") > 2}


def commands() -> list[str]:
    group = typer.main.get_command(app)
    return sorted(name for name, command in group.commands.items() if not command.hidden)  # type: ignore[attr-defined]


@each("command", commands())
def test_the_pages_name_every_command(command):
    for page in ("README.md", "docs/commands.md"):
        assert f"webgym {command}" in (ROOT / page).read_text()


@each("code", EXIT_CODES)
def test_the_shell_page_names_every_exit_code(code):
    lines = (ROOT / "docs/shell.md").read_text().splitlines()
    assert any(str(code) in line.replace("|", " ").replace("`", " ").split() for line in lines)


def test_the_version_is_born_in_one_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"] == {"path": "webgym_cli/__init__.py"}


def test_a_commit_is_checked_by_the_tools_of_make_check():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert [" ".join(hook["entry"].split()[:2]).rstrip() for hook in hooks] == [
        ".venv/bin/ruff check",
        ".venv/bin/ruff format",
        ".venv/bin/mypy",
    ]
    recipe = (ROOT / "Makefile").read_text().partition("\ncheck:")[2].partition("\n\n")[0]
    assert all(command in recipe for command in ("ruff check", "ruff format --check", "mypy"))
