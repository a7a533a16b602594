"""Loops that need neither browser nor server nor trainer: a context of the tests has the stages as methods."""

import pytest

from tests.loop.curriculum_stages import Told
from webgym_cli.loop import judging, phases, preparation, rollouts, training
from webgym_cli.store.run import RunDir

STAGES = {rollouts: "rollout", judging: "judge", preparation: "prepare", training: "train"}


@pytest.fixture
def told_stages(monkeypatch):
    """Have the loop call a stage as the method of its context."""
    for module, name in STAGES.items():
        monkeypatch.setattr(
            module, name, lambda context, *values, called=name, **named: getattr(context, called)(*values, **named)
        )


@pytest.fixture
def run(tmp_path, monkeypatch, told_stages):
    """A run that is not there yet; what is told to its stages ends with the test."""
    monkeypatch.setattr(phases, "StageContext", Told)
    for name, value in {"calls": [], "tried": [], "dies": ""}.items():
        monkeypatch.setattr(Told, name, value)
    return RunDir(tmp_path / "run")
