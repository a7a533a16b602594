"""`webgym setup` and `webgym doctor` as they are typed."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.app import app
from tests.venvs.test_doctor import install
from webgym_cli.cli.commands import setup as command


def typed(*words):
    return CliRunner().invoke(app, list(words))


def test_a_dry_run_prints_the_plan_and_writes_nothing(home):
    result = typed("setup", "--role", "serve", "--role", "train", "--device", "cuda", "--dry-run")
    assert result.exit_code == 0, result.output
    plans = [json.loads(line) for line in result.stdout.splitlines()]
    facts = [(plan["role"], plan["device"], plan["state"]) for plan in plans]
    assert facts == [("serve", "cuda", "make"), ("train", "cuda", "make")]
    assert not home.exists()
    assert typed("setup", "--role", "judge").exit_code == 2


def test_the_doctor_fails_when_something_is_missing_and_says_what():
    result = typed("doctor", "--json", "-s", "venvs.device=cpu")
    assert result.exit_code == 1
    parts = {part["name"]: part for part in map(json.loads, result.stdout.splitlines())}
    assert parts["train"]["fix"] == "webgym setup --role train"


def test_a_long_step_gives_signs_of_life(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "REPORT_SECONDS", 0.3)
    events, log = [], tmp_path / "log"
    log.write_text("Resolved 2 packages in 1s\nPrepared 2 packages in 1s\n")  # an earlier step's
    code = "import time; print('Collecting torch', flush=True); print('WARNING: x', flush=True); time.sleep(2); exit(3)"
    assert asyncio.run(command.run_logged([sys.executable, "-c", code], log, events.append)) == 3
    assert any("Collecting torch" in line for line in events)
    assert not any("2 of 2 packages" in line for line in events)


def set_up(monkeypatch, *words):
    """Type `webgym setup --role serve` with a runner that makes environments with FlashInfer; return its notes."""

    async def run_logged(command, log, say):
        if "venv" in command:
            install(Path(command[-1]), vllm="0.32.0", flashinfer_python="0.7.0")
        return 0

    monkeypatch.setattr(command, "run_logged", run_logged)
    monkeypatch.setattr("webgym_cli.venvs.locate.driver_answers", lambda: False)
    result = typed("setup", "--role", "serve", *words, "--json")
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(("processor", "is_named"), [("x86_64", False), ("aarch64", True)])
def test_a_node_without_a_driver_hears_of_the_kernels_that_vllm_lacks_and_a_platform_without_lock_file_is_named(
    monkeypatch, processor, is_named
):
    monkeypatch.setattr("platform.machine", lambda: processor)
    notes = set_up(monkeypatch, "--device", "cuda")
    assert "vllm download-kernels" in notes
    assert ("no lock file for" in notes) == is_named
