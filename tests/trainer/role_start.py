import importlib.util

import webgym_cli


def test_the_package_is_found():
    assert webgym_cli.__version__


def test_what_is_installed_beside_webgym_is_not_found():
    assert importlib.util.find_spec("playwright") is None
