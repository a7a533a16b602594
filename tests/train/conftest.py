"""Runs that are ready for training."""

from pathlib import Path

import pytest

from tests.train.train_data import settings_for
from webgym_cli.store.run import RunDir, create_or_open


@pytest.fixture
def role(tmp_path) -> Path:
    """The folders of a role environment, with nothing in them that runs."""
    folder = tmp_path / "role" / "bin"
    folder.mkdir(parents=True)
    for name in ("python", "llamafactory-cli"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder.parent


@pytest.fixture
def run(tmp_path) -> RunDir:
    run = RunDir(tmp_path / "a run")
    create_or_open(run, settings_for())
    return run
