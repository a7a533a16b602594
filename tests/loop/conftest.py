"""A run whose curriculum needs neither browser nor server nor trainer."""

from __future__ import annotations

import pytest

from tests.loop.curriculum_stages import Told
from webgym_cli.loop import phases
from webgym_cli.store.run import RunDir


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run that is not there yet; what is told to its stages ends with the test."""
    monkeypatch.setattr(phases, "Pipeline", Told)
    for name, value in {"calls": [], "tried": [], "dies": ""}.items():
        monkeypatch.setattr(Told, name, value)
    return RunDir(tmp_path / "run")
