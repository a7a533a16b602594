"""What the tests of imports share."""

import pytest

from webgym_cli.config.load import load
from webgym_cli.store.run import RunDir, create_or_open


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "run")
    create_or_open(made, load())
    return made
