"""Runs that are ready for training."""

from pathlib import Path

import pytest

from tests.records.builders import new_run
from tests.stack_fixtures import needs
from tests.train.train_data import prepare, rows, settings_for
from tests.train.training import FIRST
from webgym_cli.store.run import RunDir, create_or_open

STEPS = {"per_device_train_batch_size": 1, "save_steps": 1}


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
    return new_run(tmp_path / "a run", settings_for())


@pytest.fixture(scope="session")
def train_python() -> Path:
    return needs("train")


@pytest.fixture(scope="session")
def images(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("images")


@pytest.fixture(scope="session")
def trainable(train_python, tiny_model_dir, tmp_path_factory, images):
    """Returns how to make a run whose dataset is prepared for a real training."""

    def make(samples=12, start=0, name=FIRST, run=None, digest="d0", train=None, **algorithm):
        settings = settings_for(tiny_model_dir, train_python, train=train, **(STEPS | algorithm))
        run = run or RunDir(tmp_path_factory.mktemp("stack") / "a run")
        create_or_open(run, settings)
        prepare(run, settings, rows(images, samples, start), name, digest)
        return run, settings

    return make
