"""Wrong input and dead servers, with the real trainer and vLLM: one clear line, and nothing lost."""

import shutil
from pathlib import Path

import pytest

from tests.executable import Command, failures, finished, stored
from tests.forked import refused
from tests.stack_fixtures import needs

pytestmark = pytest.mark.stack


DEMO = ("-c", "demo", "-s", "rollout.concurrency=4")


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
    assert f"{copy} is in the run" in refused("init-model", "tiny", copy, cwd=tmp_path, code=2)[0]
    assert (copy / "config.json").exists()


def test_a_server_that_dies_is_started_again_and_nothing_is_lost(tiny_model_dir, tmp_path):
    run = tmp_path / "run"
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
