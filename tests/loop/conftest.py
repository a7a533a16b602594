"""Loops that need neither browser nor server nor trainer: a context of the tests has the stages as methods."""

import pytest

from tests.loop.curriculum_stages import Told
from webgym_cli.loop import phases, preparation, rollouts, scoring, training
from webgym_cli.store.run import RunDir

STAGES = {rollouts: "rollout", scoring: "score", preparation: "prepare", training: "train"}


def tell_stages(patch):
    """Have the loop call a stage as the method of its context."""

    def of_context(name):
        return lambda context, *values, **named: getattr(context, name)(*values, **named)

    for module, name in STAGES.items():
        patch.setattr(module, name, of_context(name))


def tell_phases(patch):
    """Have a curriculum's stages be told what to do, and note it from the beginning."""
    tell_stages(patch)
    patch.setattr(phases, "StageContext", Told)
    for name, value in {"calls": [], "tried": [], "dies": ""}.items():
        patch.setattr(Told, name, value)


@pytest.fixture
def told_stages(monkeypatch):
    tell_stages(monkeypatch)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run that is not there yet; what is told to its stages ends with the test."""
    tell_phases(monkeypatch)
    return RunDir(tmp_path / "run")
