"""The loop's own duties, without the stages."""

from __future__ import annotations

import pytest

from tests.agent.policy_host import Host
from tests.records.made import published
from webgym_cli.config.load import load
from webgym_cli.config.model import Settings
from webgym_cli.loop.pipeline import Pipeline
from webgym_cli.records.task import Split
from webgym_cli.store.metrics import read_events
from webgym_cli.store.run import RunDir, create_or_open


@pytest.fixture
def trained(tmp_path):
    """A run that was killed between publishing its checkpoint and noting it."""
    run, settings = RunDir(tmp_path / "run"), Settings()
    create_or_open(run, settings)
    published(run, settings, name="model_20250115_143022", steps=3)
    return run, settings


async def test_a_training_that_a_crash_left_unnoted_is_noted_once(trained):
    run, settings = trained
    seen = []
    for _ in range(2):
        async with Pipeline(run, settings, run.logs, seen.append):
            pass
    noted = list(read_events(run, "train"))
    assert [event["name"] for event in noted] == ["model_20250115_143022"]
    assert [event["event"] for event in seen] == ["train"]


async def test_a_lost_link_is_mended(trained):
    run, settings = trained
    run.model(settings).unlink()
    async with Pipeline(run, settings, run.logs, lambda event: None):
        assert run.model(settings).resolve() == (run.checkpoints / "model_20250115_143022").resolve()


@pytest.mark.browser
async def test_policy_servers_share_a_rollout_and_the_one_that_is_down_is_named(tmp_path):
    run, settings = RunDir(tmp_path / "run"), load(["demo"], ["rollout.train_max_steps.easy=2"])
    create_or_open(run, settings)
    up, down = Host(), Host()
    await up.start()
    await down.start()
    await down.stop()
    seen = []
    async with Pipeline(run, settings, run.logs, seen.append) as pipeline:
        summary = await pipeline.rollout(Split.TRAIN, f"{down.url}, {up.url}", 4)
    await up.stop()
    assert (summary["collected"], summary["failures"]) == (4, {})
    assert summary["servers"][up.url]["requests"] == up.answered == summary["steps"] == 8
    lost = summary["servers"][down.url]["requests"]
    assert 1 <= lost <= 4, "its breaker opens after three failures in a row; a fourth may be under way by then"
    (told,) = [event["message"] for event in seen if event["event"] == "rollout"]
    assert told.endswith(f"{down.url} failed {lost} of {lost} requests")
