"""Wrong input and dead servers, with the real trainer and vLLM: one clear line, and nothing lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.executable import (
    Command,
    failures,
    finished,
    stored,
    trajectories,
)
from tests.forked import refused, webgym
from tests.stack_fixtures import needs

pytestmark = pytest.mark.stack


DEMO = ("-c", "demo", "-s", "rollout.concurrency=4")


@pytest.fixture
def run(tmp_path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def copy(sft_run, tmp_path) -> Path:
    """A copy of the run with the demonstrations before it had a dataset."""
    run = Path(shutil.copytree(sft_run[0].root, tmp_path / "run", symlinks=True))
    for name in ("checkpoints", "llamafactory_data"):
        shutil.rmtree(run / name)
    (run / "model.pt").unlink()
    return run


def test_train_needs_a_dataset_that_it_was_not_trained_on(copy, sft_run, tmp_path):
    message, hint = refused("train", copy, cwd=tmp_path, code=3)
    assert "there is no dataset" in message
    assert hint == f"webgym prepare {copy}"
    trained = Path(shutil.copytree(sft_run[0].root, tmp_path / "trained", symlinks=True))
    policy = (trained / "model.pt").resolve()
    assert "was already trained on it" in refused("train", trained, cwd=tmp_path, code=3)[0]
    assert (trained / "model.pt").resolve() == policy


def test_images_that_are_gone_are_dropped_by_name(copy, tmp_path):
    row = next(trajectory for trajectory in trajectories(copy) if trajectory["outcome"]["reward"] == 1)
    sha = row["steps"][0]["observation"]["screenshot"]["sha256"]
    users = [trajectory for trajectory in trajectories(copy) if sha in json.dumps(trajectory)]
    (copy / f"screenshots/{sha[:2]}/{sha}.png").unlink()
    webgym("prepare", copy, cwd=tmp_path)
    dropped = json.loads((copy / "llamafactory_data/dropped.json").read_text())
    assert dropped["dropped_steps"]["image_missing"] >= len(users)
    before = (copy / "llamafactory_data/finetune_train.json").read_bytes()
    assert sha.encode() not in before
    shutil.rmtree(copy / "screenshots")
    message, _ = refused("prepare", copy, cwd=tmp_path, code=1)
    assert "image_missing" in message
    assert (copy / "llamafactory_data/finetune_train.json").read_bytes() == before, "the earlier dataset stays"


def test_a_model_that_is_none(copy, tmp_path, tiny_model_dir):
    needs("serve")
    wrong = ("-s", f"policy_config.base_model={tmp_path / 'no-model'}")
    message, _ = refused("rollout", tmp_path / "other", *DEMO, *wrong, "--policy", "vllm", cwd=tmp_path, code=2)
    assert str(tmp_path / "no-model") in message
    message, _ = refused("prepare", copy, *wrong, cwd=tmp_path, code=2)
    assert "policy_config.base_model" in message
    config = json.loads((copy / "config.json").read_text())
    config["policy_config"]["base_model"] = str(tmp_path / "no-model")
    (copy / "config.json").write_text(json.dumps(config))
    message, _ = refused("prepare", copy, cwd=tmp_path, code=2)
    assert str(tmp_path / "no-model") in message
    message, _ = refused("init-model", "tiny", copy, cwd=tmp_path, code=2)
    assert f"{copy} is in the run" in message
    assert (copy / "config.json").exists()


def test_a_server_that_dies_is_started_again_and_nothing_is_lost(tiny_model_dir, tmp_path, run):
    model = ("-s", f"policy_config.base_model={tiny_model_dir}", "-s", f"venvs.serve={needs('serve')}")
    command = Command(tmp_path, "rollout", run, *DEMO, *model, "--policy", "vllm", "--episodes", 14)
    command.until(lambda: stored(run).count(b"\n") >= 6)
    servers = [child for child in command.tree() if "cpu_server" in " ".join(child.cmdline()[:2])]
    assert servers, [child.cmdline() for child in command.tree()]
    before = stored(run)
    # the engine alone, the youngest: the server that answers HTTP must end with it
    max(servers[0].children(recursive=True), key=lambda child: child.create_time()).kill()
    assert command.finish() == 0
    assert stored(run).startswith(before)
    assert set(failures(run)) <= {"cancelled", "policy_unavailable"}
    assert len(finished(run)) == len(set(finished(run))) == 14
