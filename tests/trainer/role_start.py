import importlib.util

import webgym_cli


def test_the_package_is_found_and_what_is_installed_beside_it_is_not():
    assert webgym_cli.__version__
    assert importlib.util.find_spec("playwright") is None
