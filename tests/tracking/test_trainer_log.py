"""The curve of a training whose trainer was offline."""

import json

import pytest

from webgym_cli.tracking.worker import read_offline_curve

LINES = [
    {"current_steps": 1, "total_steps": 2, "loss": 0.5, "lr": 1e-6, "epoch": 0.5},
    {"current_steps": 2, "total_steps": 2, "loss": 0.25, "lr": 2e-6, "epoch": 1.0},
    {"current_steps": 2, "total_steps": 2, "eval_loss": 0.75, "epoch": 1.0},
    {"current_steps": 2, "total_steps": 2, "epoch": 1.0},
]


@pytest.fixture
def attempt(run):
    folder = run.logs / "attempt_0001"
    folder.mkdir(parents=True)
    lines = [json.dumps(line) for line in LINES]
    (folder / "model_a.trainer_log.jsonl").write_text("\n".join([*lines[:2], "{torn", "[]", *lines[2:]]) + "\n")
    return folder


def test_an_offline_training_is_read_from_its_log(run, attempt):
    (attempt / "wandb/offline-run-20260101_000000-x").mkdir(parents=True)
    assert list(read_offline_curve(run, {"name": "model_a"})) == [
        (1, {"train/loss": 0.5, "train/learning_rate": 1e-6, "train/epoch": 0.5}),
        (2, {"train/loss": 0.25, "train/learning_rate": 2e-6, "train/epoch": 1.0}),
        (2, {"eval/loss": 0.75, "train/epoch": 1.0}),
    ]
    assert list(read_offline_curve(run, {"name": "model_b"})) == []


def test_what_the_trainer_reported_itself_is_not_sent_again(run, attempt):
    (attempt / "wandb/run-20260101_000000-x").mkdir(parents=True)
    assert list(read_offline_curve(run, {"name": "model_a"})) == []
