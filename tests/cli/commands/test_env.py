"""`webgym env serve` without its package."""

import importlib.util

import pytest

from tests.forked import webgym


@pytest.mark.skipif(importlib.util.find_spec("openenv") is not None, reason="openenv is installed")
def test_without_openenv_the_extra_is_named(tmp_path):
    result = webgym("env", "serve", "-c", "sites", cwd=tmp_path, code=2)
    assert "webgym[openenv]" in result.stderr
