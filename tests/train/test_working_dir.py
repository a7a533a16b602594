import json

import pytest

from tests.train.fake_checkpoints import checkpoint, weights
from webgym_cli.train.llamafactory.optimizer_carryover import steps_for
from webgym_cli.train.working_dir import (
    finished_checkpoint,
    has_optimizer_states,
    is_complete,
    is_resumable,
    newest_complete,
)


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_whole_checkpoint(tmp_path, zero, world_size):
    path = checkpoint(tmp_path / "checkpoint-4", world_size=world_size, zero=zero)
    assert is_complete(path)
    assert is_resumable(path, world_size)
    assert has_optimizer_states(path)


def test_every_cut_through_a_checkpoint_is_noticed(tmp_path):
    path = checkpoint(tmp_path / "checkpoint-4")
    for name in ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"):
        data = (path / name).read_bytes()
        for size in (0, len(data) // 2, len(data) - 1):
            (path / name).write_bytes(data[:size])
            # trainer_state.json without its last brace is no JSON either
            assert not (is_complete(path) and is_resumable(path, 1)), (name, size)
        (path / name).write_bytes(data)
    assert is_complete(path) and is_resumable(path, 1)


def test_a_missing_shard_is_noticed(tmp_path):
    path = checkpoint(tmp_path / "checkpoint-4")
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert not is_complete(path)
    weights(path / "model-2.safetensors")
    assert is_complete(path)
    path = checkpoint(tmp_path / "checkpoint-8", world_size=2, zero=True)
    next(path.glob("global_step4/*rank_1*optim_states.pt")).unlink()  # DeepSpeed needs all its ranks
    assert not is_resumable(path, 2)


def test_the_newest_by_number_not_by_name(tmp_path):
    for step in (9, 10):
        checkpoint(tmp_path / f"checkpoint-{step}", step=step)
    (tmp_path / "checkpoint-x").mkdir()
    assert newest_complete(tmp_path).name == "checkpoint-10"
    assert newest_complete(tmp_path / "none") is None
    checkpoint(tmp_path / "other" / "checkpoint-5", step=4)  # of another step
    assert newest_complete(tmp_path / "other") is None


def test_weights_only_are_no_resumable_checkpoint(tmp_path):
    path = checkpoint(tmp_path / "checkpoint-4")
    (path / "optimizer.pt").unlink()
    assert is_complete(path)
    assert not is_resumable(path, 1)
    assert not has_optimizer_states(path)
    (path / "latest").write_text("global_step4")
    assert has_optimizer_states(path)


def test_finished_is_the_last_step_written_to_its_end(tmp_path):
    assert finished_checkpoint(tmp_path) is None
    checkpoint(tmp_path / "checkpoint-3", step=3)
    assert finished_checkpoint(tmp_path) is None
    last = checkpoint(tmp_path / "checkpoint-4", step=4)
    (last / "optimizer.pt").unlink()  # weights are enough
    assert finished_checkpoint(tmp_path) == last
    (last / "model.safetensors").write_bytes(b"torn")
    assert finished_checkpoint(tmp_path) is None


def test_intervals_follow_the_new_settings():
    steps = steps_for({"logging_steps": 1, "save_steps": 999999}, 10)
    assert steps == {"logging_steps": 1, "eval_steps": 1, "save_steps": 999999}
    assert steps_for({"logging_steps": 5, "save_steps": 0.25, "eval_steps": 3}, 10)["save_steps"] == 3
