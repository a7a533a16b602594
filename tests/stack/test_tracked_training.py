"""LLaMA-Factory reports into the run that webgym tracks: one id, whoever tells."""

from __future__ import annotations

import pytest

from tests.stack_fixtures import needs
from tests.tracking.offline_file import segments
from tests.train.train_data import prepare, rows, settings_for
from webgym_cli.loop import training
from webgym_cli.loop.context import StageContext
from webgym_cli.store.run import RunDir, create_or_open, new_attempt, run_id

pytestmark = pytest.mark.stack


async def test_trainer_and_webgym_write_into_one_run(tiny_model_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    settings = settings_for(tiny_model_dir, needs("train"), report_to="wandb", num_train_epochs=1)
    run = RunDir(tmp_path / "run")
    create_or_open(run, settings)
    prepare(run, settings, rows(tmp_path / "images", 8), "model_20260101_000000")
    told = []
    async with StageContext(run, settings, new_attempt(run), told.append) as context:
        await training.train(context)
    assert [event for event in told if event["event"] == "tracking_failed"] == []
    trainer, webgym = segments(run)
    assert {segment.run.run_id for segment in (trainer, webgym)} == {run_id(run, settings)}
    assert {(segment.run.project, segment.run.display_name) for segment in (trainer, webgym)} == {("rl", "webgym-")}
    steps = [row["train/global_step"] for row in trainer.history if "train/loss" in row]
    assert steps == [1, 2]
    assert trainer.axes["*"] == "train/global_step"
    (summary,) = webgym.history
    assert (summary["iteration"], summary["train/optimizer_steps"]) == (0, 2)
    assert summary["train/mean_loss"] > 0
