import importlib.util
from pathlib import Path

import webgym_cli
from webgym_cli.train.rl import launch as start


def test_the_package_is_found_at_its_place():
    assert Path(webgym_cli.__file__).parent == start.ROOM.parents[1]
    assert webgym_cli.__version__


def test_what_is_installed_beside_webgym_is_not_found():
    assert importlib.util.find_spec("playwright") is None
