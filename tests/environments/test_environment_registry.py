"""Which environments can be made."""

from __future__ import annotations

import subprocess
import sys

import pytest

from webgym_cli.config.model import Settings
from webgym_cli.environments.miniwob import MiniWobPool
from webgym_cli.environments.registry import make_pool
from webgym_cli.errors import UsageError


def test_known_and_unknown_names():
    assert isinstance(make_pool(Settings(), "miniwob"), MiniWobPool)
    with pytest.raises(UsageError, match="no environment 'webarena'"):
        make_pool(Settings(), "webarena")


def test_importing_an_environment_loads_no_driver():
    code = "import sys, webgym_cli.environments.miniwob; sys.exit(bool({'playwright', 'PIL'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
