"""Training backends and advantage estimators of a user, from files outside the package."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.train.train_data import prepare, rows, settings_for
from webgym_cli.errors import SettingsError
from webgym_cli.store import checkpoints
from webgym_cli.train.registry import BACKENDS, check_algorithm, find_backend
from webgym_cli.util.registry import portable_plugins

NAME = "model_20260109_000000"
ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import json, os, pathlib, shutil, sys
told = json.loads(pathlib.Path(sys.argv[1]).read_text())
samples = json.loads((pathlib.Path(told["data"]) / "finetune_train.json").read_text())
before = told["resume_from_checkpoint"]
(pathlib.Path(told["output_dir"]) / "begun").write_text(f"{len(samples)} {before and pathlib.Path(before).name}")
for step in (1, 2):
    out = pathlib.Path(told["output_dir"]) / f"checkpoint-{step}"
    if out.exists():
        continue
    out.mkdir()
    (out / "model.safetensors").write_bytes(pathlib.Path(os.environ["WEIGHTS"]).read_bytes())
    (out / "config.json").write_text(json.dumps({"extra": told["extra"], "begun": open("begun").read()}))
    (out / "trainer_state.json").write_text(json.dumps({"global_step": step, "max_steps": 2}))
    if "DIE" in os.environ:
        sys.exit("ValueError: bad luck")
"""
PLUGIN = """
from pathlib import Path
from webgym_cli.train.registry import BACKENDS
from webgym_cli.train.script import script_backend

BACKENDS.register("toy_trainer", script_backend(Path(__file__).with_name("toy_train.py"), data="dataset"))
"""


@pytest.fixture
def plugin(tmp_path) -> Path:
    (tmp_path / "toy_train.py").write_text(SCRIPT)
    file = tmp_path / "toy.py"
    file.write_text(PLUGIN)
    return file


def webgym(*arguments, **env: str) -> subprocess.CompletedProcess:
    import os

    return subprocess.run(
        [sys.executable, "-m", "webgym_cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **env},
        cwd=ROOT,
    )


def test_a_script_of_a_plugin_trains_is_interrupted_and_goes_on(tmp_path, plugin, run, role):
    from tests.train.fake_checkpoints import weights

    settings = settings_for(role=role)
    prepare(run, settings, rows(tmp_path / "images", 3), NAME)
    weights(tmp_path / "model.safetensors")
    given = ("-s", f'plugins=["{plugin}"]', "-s", "train.algorithm=toy_trainer", "-s", 'train.extra={"speed": 3}')
    env = {"WEIGHTS": str(tmp_path / "model.safetensors")}
    planned = webgym("train", run.root, *given, "--dry-run", "--json")
    assert planned.returncode == 0, planned.stderr
    plan = json.loads(planned.stdout)
    assert plan["argv"] == [sys.executable, str(tmp_path / "toy_train.py"), "launch.json"]
    died = webgym("train", run.root, *given, **env, DIE="1")
    assert died.returncode == 4, died.stderr
    status = webgym("status", run.root, "--json")
    assert "train" in status.stdout
    resumed = webgym("resume", run.root, **env)
    assert resumed.returncode == 0, resumed.stderr
    made = checkpoints.current(run)
    assert (made.name, made.algorithm, made.version, made.steps) == (NAME, "toy_trainer", 1, 2)
    told = json.loads((checkpoints.folder(run, made) / "config.json").read_text())
    assert told == {"extra": {"speed": 3}, "begun": "3 checkpoint-1"}
    assert NAME in webgym("status", run.root, "--json").stdout


def test_an_unknown_algorithm_names_the_nearest(tmp_path):
    with pytest.raises(SettingsError, match="no training backend or advantage estimator 'gropo'") as caught:
        find_backend("gropo")
    assert "did you mean grpo?" in caught.value.hint
    with pytest.raises(SettingsError, match=r"needs agent\.greedy_chain=true"):
        check_algorithm(settings_for(train={"algorithm": "remax"}))


def test_what_each_algorithm_is_prepared_as():
    names = ("sft", "grpo", "gae", "webrl")
    assert [find_backend(name).data for name in names] == ["dataset", "batch", "batch", "transitions"]
    assert BACKENDS.names() == ["sft", "webrl"]


def test_plugins_are_found_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").touch()
    assert portable_plugins(["mine.py", "json"]) == [str(tmp_path / "mine.py"), "json"]
