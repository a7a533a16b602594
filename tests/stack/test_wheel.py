"""The wheel alone, in an empty environment and far from any checkout: what it lacks, its users lack."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.executable import needs_chromium
from tests.stack_fixtures import needs

pytestmark = [pytest.mark.stack, pytest.mark.browser, pytest.mark.timeout(1200)]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The folder of the executables of an environment that holds the wheel and what it depends on."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "pip", "-q", "wheel", "--no-deps", "-w", folder, ROOT], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (wheel,) = folder.glob("webgym-*.whl")
    executables = folder / "venv" / "bin"
    install = (sys.executable, "-I", ROOT / "webgym_cli/venvs/installer.py", "install", executables / "python")
    subprocess.run([*install, "--quiet", wheel], check=True)
    return executables


def test_episodes_become_a_trained_policy(installed, tiny_model_dir, tmp_path):
    needs_chromium()
    needs("train")

    def webgym(*words: str) -> list[dict]:
        clean = os.environ | {"PYTHONPATH": "", "PATH": f"{installed}:/usr/bin:/bin"}
        done = subprocess.run(
            ["webgym", *words], cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    small = ("-s", f"policy_config.base_model={tiny_model_dir}", "-s", "algorithm_config.num_train_epochs=1")
    webgym("rollout", "run", "-c", "demo", "--policy", "oracle", "--episodes", "4", *small)
    assert webgym("inspect-buffer", "run", "--json")[0]["successes"] == 4
    assert webgym("prepare", "run")[-1]["train_samples"] > 0
    trained = webgym("train", "run")[-1]
    assert (tmp_path / "run" / "model.pt").resolve().name == trained["name"]
    code = [installed / "python", "-c", "import webgym_cli; print(webgym_cli.__file__)"]
    used = subprocess.run(code, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert Path(used.stdout.strip()).is_relative_to(installed.parent)
