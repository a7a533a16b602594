"""The real wandb package online, with a server that stands for W&B's."""

import json

import pytest

from tests.tracking.conftest import KEY, happened
from tests.tracking.fake_server import FakeServer
from tests.tracking.test_tracker import settings, track
from webgym_cli.store.run import run_id

QUIET = ("log_config.sample_trajectories=0", "log_config.entity_name=team")


@pytest.fixture
def server(monkeypatch):
    with FakeServer() as fake_server:
        monkeypatch.setenv("WANDB_BASE_URL", fake_server.url)
        monkeypatch.setenv("MY_KEY", KEY)
        yield fake_server


def test_several_commands_add_to_one_run_and_nothing_is_sent_twice(run, server):
    loaded_settings = settings(*QUIET, "log_config.wandb_key_env_var=MY_KEY")
    for iteration in range(2):
        happened(run, iteration)
        assert track(run, loaded_settings) == []
        assert track(run, loaded_settings) == []
    rows = server.history(run_id(run, loaded_settings))
    assert [row["_step"] for row in rows] == list(range(10))
    assert [row["iteration"] for row in rows] == [0] * 5 + [1] * 5
    assert [row["evaluation/success_rate"] for row in rows if "evaluation/success_rate" in row] == [0.25, 0.5]
    assert [(row["iteration"], row["spent/episodes"]) for row in rows if "spent/episodes" in row] == [(0, 24), (1, 48)]
    assert server.names[run_id(run, loaded_settings)]["displayName"] == "webgym-test"


def test_what_was_kept_offline_is_sent_once_there_is_a_server_the_trainers_curve_too(run, server, monkeypatch):
    loaded_settings = settings(*QUIET, "log_config.wandb_key_env_var=MY_KEY")
    happened(run, 0)
    with monkeypatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        assert track(run, loaded_settings) == []
    (attempt,) = run.logs.glob("attempt_*")
    (attempt / "wandb/offline-run-20260101_000000-x").mkdir(parents=True)
    lines = [{"current_steps": step, "total_steps": 2, "loss": 1 / step, "lr": 1e-6} for step in (1, 2)]
    (attempt / "model.trainer_log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    server.down = True
    (event,) = track(run, loaded_settings)
    assert event["event"] == "tracking_failed"
    server.down = False
    assert track(run, loaded_settings) == []
    rows = server.history(run_id(run, loaded_settings))
    assert len(rows) == 7
    curve = [(row["train/global_step"], row["train/loss"]) for row in rows if "train/global_step" in row]
    assert curve == [(1, 1.0), (2, 0.5)]
