"""What the tests of imports share."""

import pytest

from webgym_cli.config.load import load
from webgym_cli.store.run import RunDir, create_or_open


@pytest.fixture
def run(tmp_path):
    run_dir = RunDir(tmp_path / "run")
    create_or_open(run_dir, load())
    return run_dir
