"""Help and completion wait for nothing heavy."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.made_rollout import rollout
from tests.cli.runs import filled
from tests.forked import webgym
from tests.records.builders import trajectory
from webgym_cli.config.load import load
from webgym_cli.store.buffer import append
from webgym_cli.store.index.build import update
from webgym_cli.store.run import create_or_open
from webgym_cli.store.status import write_status

HEAVY = (
    *("torch", "vllm", "transformers", "playwright", "openai", "pyarrow", "duckdb", "numpy", "PIL", "huggingface_hub"),
    *("yaml", "pydantic_settings", "httpx", "aiohttp", "jinja2", "rich", "asyncio", "webgym_cli.config.model"),
)
PROGRAM = """
import sys
from webgym_cli.cli.main import main
sys.argv = ["webgym", *sys.argv[1:]]
try:
    main()
except SystemExit as ended:
    print(*sorted(sys.modules), file=sys.stderr)
    raise
"""


def modules(*arguments, **environment):
    """Return what stdout got, and the names of all modules that were imported."""
    command, given = [sys.executable, "-c", PROGRAM, *arguments], {**os.environ, **environment}
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=given)
    return result.stdout, set(result.stderr.split())


@pytest.mark.parametrize("arguments", ["--help", "-h", "rollout --help", "tasks check -h", "--version"])
def test_help_imports_nothing_heavy(arguments):
    """Typer's own parser of arguments wants pydantic."""
    output, result = modules(*arguments.split())
    assert "webgym" in output
    assert "typer" in result and not result & {*HEAVY, *(["pydantic"] if arguments in ("--help", "-h") else [])}


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["webgym", "roll"], "rollout"),
        (["webgym", "rollout", "--spl"], "--split"),
        (["webgym", "rollout", "r", "--split", "t"], "train\ntest"),
        (["webgym", "rollout", "r", "-c", "gpu"], "gpu-host"),
        (["webgym", "inspect-buffer", "r", "--failure", "brow"], "browser_crashed"),
        (["webgym", "prepare", "tests/nosuch/r"], ""),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else "",
)
def test_completion_imports_nothing_heavy(words, offered):
    """Only pydantic comes, with Typer's own parser of arguments."""
    environment = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    output, result = modules(_WEBGYM_COMPLETE="complete_bash", **environment)
    assert output.strip() == offered
    assert not result & set(HEAVY)


def test_a_command_that_does_something_imports_what_it_needs():
    """So the names above can be found at all."""
    _, result = modules("config", "show", WEBGYM_SEED="1")
    assert result >= {"pydantic", "pydantic_settings", "webgym_cli.config.model"}


def test_the_status_of_a_run_needs_no_settings_no_index_and_no_policy(run):
    create_or_open(run, load())
    write_status(run, rollout().snapshot())
    output, result = modules("status", str(run.root), "--json")
    status = json.loads(output)
    assert (status["policy"], bool(status["rollout"])) == (load().policy_config.base_model, True)
    assert not result & {*HEAVY, "jinja2"}


def test_looking_at_an_indexed_buffer_needs_no_arrow(run):
    create_or_open(run, load())
    append(run, trajectory(0))
    update(run)
    output, result = modules("inspect-buffer", str(run.root), "--json")
    assert json.loads(output)["trajectories"] == 1
    assert "duckdb" in result
    assert not result & {"pyarrow", "numpy", "yaml", "asyncio", "filelock", "rich", "playwright"}


def count_lines(names):
    """Return the number of lines of our modules."""
    specs = [importlib.util.find_spec(name) for name in names if name.startswith("webgym_cli")]
    return sum(len(Path(spec.origin).read_text().splitlines()) for spec in specs)


@pytest.mark.parametrize(
    ("arguments", "most", "absent"),
    [
        (["status", "RUN", "--json"], 5_350, {"webgym_cli.report.figures"}),
        (["rollout", "RUN", "--dry-run"], 29_500, {"webgym_cli.prepare.sft.orm", "webgym_cli.prepare.sft.execute"}),
        (["loop", "RUN", "--dry-run"], 35_500, {"webgym_cli.prepare.sft.orm", "webgym_cli.prepare.sft.execute"}),
        (["tasks", "sample", "sites:all", "-n", "1"], 13_000, {"jinja2", "webgym_cli.environments.sites.site_expert"}),
    ],
    ids=lambda part: "-".join(part[:2]) if isinstance(part, list) else "",
)
def test_a_command_that_plans_or_lists_loads_few_of_our_lines(arguments, most, absent, tmp_path):
    filled(tmp_path)
    run = str(tmp_path / "run")
    _, result = modules(*(run if word == "RUN" else word for word in arguments))
    assert not result & absent
    assert count_lines(result) <= most


def test_a_dry_run_of_a_training_loads_ten_thousand_of_our_lines_at_most(tmp_path):
    filled(tmp_path)
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    (tmp_path / "bin" / "llamafactory-cli").symlink_to(sys.executable)
    webgym("prepare", "run", cwd=tmp_path)
    output, result = modules("train", str(tmp_path / "run"), "-s", f"venvs.train={python}", "--dry-run")
    assert json.loads(output)["stage"] == "train"
    assert count_lines(result) <= 10_000
