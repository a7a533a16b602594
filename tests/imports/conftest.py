"""What the tests of imports share."""

import pytest


@pytest.fixture
def run(made_run):
    return made_run
