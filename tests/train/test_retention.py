import json
import subprocess
import sys

from tests.train.fake_checkpoints import published
from webgym_cli.store import checkpoints
from webgym_cli.train import publish


def test_old_checkpoints_lose_their_states_and_keep_their_weights(run):
    folders = [published(run, version, zero=version == 1) for version in (1, 2, 3)]
    publish.drop_old_states(run, 2)
    assert (folders[0] / "model.safetensors").is_file()
    assert (folders[0] / "trainer_state.json").is_file()
    states = ("global_step", "rng", "latest", "sched")
    assert not [path for path in folders[0].iterdir() if path.name.startswith(states)]
    assert [checkpoint.resumable for checkpoint in checkpoints.checkpoints(run)] == [False, True, True]
    assert (folders[1] / "optimizer.pt").is_file()
    publish.drop_old_states(run, 2)


def test_the_states_and_the_critic_of_policy_gradients_go_like_others(run):
    folders = [published(run, version) for version in (1, 2)]
    for folder in folders:
        (folder / "rl_state/actor").mkdir(parents=True)
        (folder / "critic").mkdir()
    publish.drop_old_states(run, 1)
    assert [(folder / "rl_state").is_dir() for folder in folders] == [False, True]
    assert (folders[0] / "critic").is_dir()
    publish.drop_old_weights(run, 1)
    assert [(folder / "critic").is_dir() for folder in folders] == [False, True]


def test_old_checkpoints_lose_their_weights_and_keep_their_records_if_a_number_is_set(run):
    folders = [published(run, version, zero=version == 2) for version in (1, 2, 3)]
    adapter = folders[0] / "adapter"
    adapter.mkdir()
    (adapter / "adapter_model.safetensors").touch()
    (folders[1] / "model.safetensors.index.json").write_text("{}")
    publish.drop_old_weights(run, None)
    assert all((folder / "model.safetensors").is_file() for folder in folders)
    publish.drop_old_weights(run, 1)
    assert [list(folder.rglob("*.safetensors*")) for folder in folders[:2]] == [[], []]
    assert not [path for path in folders[1].iterdir() if path.name.startswith(("global_step", "rng", "latest"))]
    assert (folders[2] / "model.safetensors").is_file() and (folders[2] / "optimizer.pt").is_file()
    result = [(one.version, one.weights, one.resumable) for one in checkpoints.checkpoints(run)]
    assert result == [(1, False, False), (2, False, False), (3, True, True)]
    assert checkpoints.current(run).version == 3
    assert json.loads((folders[0] / "trainer_state.json").read_text())["global_step"] == 4


def change_record(folder, **fields):
    record = json.loads((folder / checkpoints.RECORD).read_text())
    (folder / checkpoints.RECORD).write_text(json.dumps(record | fields))


def test_a_crash_between_record_and_weights_is_made_good_and_the_reference_of_the_newest_keeps_its_own(run):
    first, second, third = (published(run, version) for version in (1, 2, 3))
    change_record(second, weights=False)
    change_record(third, reference=first.name)
    publish.drop_old_weights(run, 1)
    assert [(folder / "model.safetensors").exists() for folder in (first, second, third)] == [True, False, True]


def test_weights_that_a_server_was_started_with_stay(run):
    first, _ = (published(run, version) for version in (1, 2))
    command = [sys.executable, "-S", "-c", "print(flush=True); input()", "--model", str(first)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        server.stdout.readline()
        publish.drop_old_weights(run, 1)
        assert (first / "model.safetensors").is_file()
        assert checkpoints.checkpoints(run)[0].weights
        server.communicate(b"\n")
    publish.drop_old_weights(run, 1)
    assert not (first / "model.safetensors").exists()
