"""Preparation, training and loop killed at any moment and taken up again: nothing is lost."""

import array
import json
import re
import shutil
import signal
from pathlib import Path

import pytest

from tests import forked
from tests.executable import Command, events, finished, stored, webgym

pytestmark = pytest.mark.stack


TIMES = re.compile(
    rb"model_\d{8}_\d{6}|webgym-\d{8}_\d{6}|\"created_at\": \"[^\"]*\""
    rb"|\"config_digest\": \"[^\"]*\""  # of train_config.yaml, which names the model and is compared itself
)


@pytest.fixture
def demonstrated(sft_run, tmp_path) -> Path:
    """A copy of the run with the demonstrations, its dataset prepared and not trained on yet."""
    run = tmp_path / "run"
    shutil.copytree(sft_run[0].root, run, symlinks=True)
    shutil.rmtree(run / "checkpoints")
    (run / "model.pt").unlink()
    return run


def nothing_was_interrupted(run: Path) -> None:
    assert "nothing was interrupted" in forked.webgym("resume", run, cwd=run.parent).stderr


def dataset(run: Path) -> dict[str, bytes]:
    """Return the dataset's files without what carries the time."""
    return {path.name: TIMES.sub(b"", path.read_bytes()) for path in (run / "llamafactory_data").iterdir()}


def raw(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "llamafactory_data").iterdir()}


def weights(checkpoint: Path) -> array.array:
    """Return all float32 weights of a checkpoint."""
    contents = (checkpoint / "model.safetensors").read_bytes()
    return array.array("f", contents[8 + int.from_bytes(contents[:8], "little") :])


@pytest.mark.parametrize("moment", ["drawing", "writing"])
def test_prepare_killed_half_way_is_the_uninterrupted_one(demonstrated, tmp_path, moment):
    run = demonstrated
    forked.webgym("prepare", run, cwd=tmp_path)
    reference, whole = dataset(run), raw(run)
    if moment == "writing":
        shutil.rmtree(run / "llamafactory_data")
        whole = {}
    # Without waiting for the disk it would be done before the signal.
    command = Command(tmp_path, "prepare", run, "--json", **{forked.SYNCED: "1"})
    if moment == "drawing":
        command.until(lambda: b"prepare_progress" in command.out.read_bytes(), pause=0.001)
    else:
        command.until((run / ".llamafactory_data.new").exists, pause=0)
    assert command.send(signal.SIGKILL) == -signal.SIGKILL
    assert (raw(run) if whole else {}) == whole, "an earlier dataset stays whole"
    forked.webgym("resume", run, cwd=tmp_path)
    assert dataset(run) == reference
    assert [path.name for path in run.glob(".*")] == []
    nothing_was_interrupted(run)


def test_a_training_killed_half_way_is_the_uninterrupted_one(sft_run, demonstrated, tmp_path):
    run = demonstrated
    command = Command(tmp_path, "train", run)
    command.until(lambda: list(run.glob("checkpoints/*.partial/checkpoint-10/trainer_state.json")))
    assert command.send(signal.SIGKILL) == -signal.SIGKILL
    assert not (run / "model.pt").exists()
    resumed = webgym(tmp_path, "resume", run, "--json")
    started = [event for event in map(json.loads, resumed.out.read_text().splitlines()) if event["event"] == "train"]
    assert started[0].get("done", started[0].get("steps")) > 10, "it goes on from the checkpoint"
    paths = [path for path in (run / "checkpoints").iterdir()]
    assert [path.name for path in paths] == [path.name for path in sft_run[0].checkpoints.iterdir()]
    assert (run / "model.pt").resolve() == paths[0].resolve()
    published = sft_run[0].checkpoints / paths[0].name
    # Two uninterrupted trainings, too, may differ in a weight's last bits on a busy machine; a wrong step in 1e-3.
    mine, other = (weights(folder) for folder in (paths[0], published))
    assert max(abs(one - two) for one, two in zip(mine, other, strict=True)) < 1e-5
    mine, other = (json.loads((folder / "checkpoint.json").read_text()) for folder in (paths[0], published))
    own = ("created_at", "seconds", "cpu_seconds")
    assert mine == other | {"loss": pytest.approx(other["loss"], rel=1e-5), **{key: mine[key] for key in own}}
    nothing_was_interrupted(run)


def test_a_loop_killed_in_a_rollout_loses_nothing(sft_run, policy_server, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(sft_run[0].root, run, symlinks=True)
    demonstrations = stored(run)
    small = ("rollout.episodes=10", "rollout.test_episodes=4", f"rollout.policy={policy_server.base_url}")
    more = [word for setting in (*small, "algorithm_config.num_train_epochs=1") for word in ("-s", setting)]
    command = Command(tmp_path, "loop", run, "--iterations", 2, *more)
    command.until(lambda: stored(run, iteration=1).count(b"\n") >= 3)
    assert command.send(signal.SIGKILL) == -signal.SIGKILL
    before = stored(run, iteration=1)

    webgym(tmp_path, "resume", run)
    assert stored(run) == demonstrations
    assert stored(run, iteration=1).startswith(before)
    assert sorted(finished(run, iteration=1)) == [f"train-0001-{number:05d}" for number in range(10)]
    assert len(finished(run, "test", 1)) == len(finished(run, "test", 2)) == 4
    assert [event["iteration"] for event in events(run, "evaluation")] == [1, 2]
    records = [json.loads(path.read_text()) for path in run.glob("checkpoints/*/checkpoint.json")]
    assert sorted(record["version"] for record in records) == [1, 2]
    assert len(list((run / "checkpoints").iterdir())) == 2
    newest = next(record["name"] for record in records if record["version"] == 2)
    assert (run / "model.pt").resolve().name == newest
    assert [event["name"] for event in events(run, "train")][-1] == newest
    nothing_was_interrupted(run)
