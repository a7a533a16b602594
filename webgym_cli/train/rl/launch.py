"""Runs a module of this package in the train venv's interpreter, where webgym isn't installed.

    python <folder of webgym_cli>/train/rl/launch.py MODULE [ARGUMENT ...]

Imports the standard library only.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path

ROOM = Path(__file__).resolve().parent


def make_importable() -> None:
    """Make `webgym_cli` importable from its source folder, without the packages that are installed beside it."""
    package = ROOM.parents[1]
    spec = importlib.util.spec_from_file_location(
        "webgym_cli", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{package} is not a package")
    module = importlib.util.module_from_spec(spec)
    sys.modules["webgym_cli"] = module
    spec.loader.exec_module(module)


def main(arguments: list[str]) -> None:
    """Run the named module as if Python had been called with it."""
    if not arguments:
        raise SystemExit("usage: launch.py MODULE [ARGUMENT ...]")
    # the interpreter puts this folder first on sys.path, where its modules could shadow other libraries
    sys.path[:] = [place for place in sys.path if Path(place).resolve() != ROOM]
    sys.argv = arguments
    make_importable()
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
