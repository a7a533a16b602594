"""Runs to be tracked, and the environment in which wandb is asked to."""

from pathlib import Path

import pytest

from tests.records.builders import CRASHED, SOLVED, UNSOLVED, new_run, png, trajectory
from webgym_cli.config.load import load
from webgym_cli.config.model import Settings
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import append
from webgym_cli.store.metrics import append_event
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore

KEY = "0123456789abcdef" * 2 + "01234567"
"""A key as they look; no server knows it."""


@pytest.fixture(autouse=True)
def person(monkeypatch, tmp_path_factory):
    """Somebody without a key, whose home folder is empty."""
    home = tmp_path_factory.mktemp("home")
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR"):
        monkeypatch.setenv(name, str(home / name))
    return home


@pytest.fixture
def run(tmp_path):
    """A run without events; eight screenshots are stored."""
    return new_tracked_run(tmp_path / "run", load())


def new_tracked_run(root: Path, settings: Settings) -> RunDir:
    """Make a run without events; eight screenshots are stored."""
    run = new_run(root, settings)
    store = ScreenshotStore(run.screenshots)
    for shade in range(8):
        store.put(png(shade))
    return run


def happened(run: RunDir, iteration: int) -> None:
    """Store an iteration's episodes, of every outcome, and its events."""
    for split in Split:
        for number in range(12):
            outcome = (SOLVED, UNSOLVED, CRASHED)[number % 3]
            append(run, trajectory(number, iteration=iteration, steps=number % 5, outcome=outcome, split=split))
    summary = {"iteration": iteration, "episodes": 8, "success_rate": 0.25 * (iteration + 1), "interval": [0.1, 0.6]}
    append_event(run, {"event": "evaluation", "split": "test", **summary, "failures": {"browser_crashed": 4}})
    append_event(run, {"event": "rollout", "split": "train", **summary, "steps_per_second": 3.5})
    append_event(run, {"event": "prepare", "iteration": iteration, "train_samples": 40 + iteration})
    append_event(run, {"event": "judge", "judged": 5, "success_rate": None})
    append_event(
        run, {"event": "train", "name": "model", "version": iteration + 1, "iteration": iteration, "loss": 0.5}
    )
