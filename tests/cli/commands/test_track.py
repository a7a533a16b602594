"""`webgym track`, as a user meets it."""

import json

import pytest

from tests.app import call
from tests.tracking.conftest import KEY, happened, new_run
from tests.tracking.fake_server import FakeServer
from webgym_cli.config.load import load
from webgym_cli.errors import JobError, MissingStageError, UsageError


@pytest.fixture
def run(tmp_path):
    run_dir = new_run(tmp_path / "run", load())
    happened(run_dir, 0)
    return run_dir


def test_a_dry_run_tells_what_would_be_sent_where(run, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    record = json.loads(call("track", run.root, "--dry-run", "--json", "-s", "log_config.entity_name=team")[0])
    facts = {"mode": "offline", "reason": "WANDB_MODE=offline", "entity": "team", "project": "rl", "events": 5}
    assert record.items() >= {"event": "track", **facts}.items()
    assert len(record["id"]) == 16
    assert not run.logs.exists()


def test_what_is_sent_is_not_sent_again(run, monkeypatch):
    with FakeServer() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        monkeypatch.setenv("WANDB_MODE", "online")
        first, second = (call("track", run.root, "--json", "-s", "log_config.sample_trajectories=0") for _ in range(2))
    assert [json.loads(out)["events"] for out, _ in (first, second)] == [5, 0]
    assert "sent before" in second[1]


@pytest.mark.parametrize("mode", ["offline", ""])
def test_nothing_sent_is_no_success(run, monkeypatch, mode):
    """Without a key wandb writes files only."""
    monkeypatch.setenv("WANDB_MODE", mode)
    with pytest.raises(UsageError, match="nothing can be sent") as caught:
        call("track", run.root)
    assert "WANDB_API_KEY" in caught.value.hint and not run.logs.exists()


def test_a_run_without_metrics_has_nothing_to_send(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_MODE", "online")
    with pytest.raises(MissingStageError, match="no metrics"):
        call("track", new_run(tmp_path / "empty", load()).root)


def test_refusals_name_the_reason(run, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="WANDB_MODE=disabled") as refused:
        call("track", run.root)
    assert refused.value.hint == f"env -u WANDB_MODE webgym track {run.root} -s log_config.tracking=auto"
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_API_KEY", "short")
    with pytest.raises(JobError, match=r"Weights & Biases: .*tracking\.log"):
        call("track", run.root)
