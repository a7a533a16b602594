"""`webgym env serve` without its package, and with it."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.peers import OPENENV
from tests.forked import webgym
from tests.peers import require

TESTS = Path(__file__).parents[2] / "env_server" / "test_server.py"
# Behind our own packages: a client's other versions of them don't matter.
RUN = "import sys, pytest; sys.path.append(sys.argv[1]); sys.exit(pytest.main(sys.argv[2:]))"


@pytest.mark.skipif(importlib.util.find_spec("openenv") is not None, reason="openenv is installed")
def test_without_openenv_the_extra_is_named(tmp_path):
    assert "webgym[openenv]" in webgym("env", "serve", "-c", "sites", cwd=tmp_path, code=2).stderr


@pytest.mark.browser
def test_openenv_s_own_clients_and_its_validation_are_served():
    """Runs the tests of the server, which are skipped in an environment without the package."""
    require(OPENENV)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-c", RUN, OPENENV.packages_folder, "-q", "-p", "no:cacheprovider", TESTS]
    done = subprocess.run(
        list(map(str, command)), cwd=TESTS.parents[2], env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout
