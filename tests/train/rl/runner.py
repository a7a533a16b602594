"""Runs tests of this folder in a role's interpreter, which has torch but neither pytest nor webgym.

    python runner.py LAUNCH

LAUNCH is the room's `launch.py`. Each line of stdin names a test: `FILE.py FUNCTION`. For each it writes a line to
stdout, as JSON: "" for passed, "skipped: ..." or a traceback.
"""

import functools
import importlib.util
import json
import os
import runpy
import sys
import traceback
import unittest
from pathlib import Path


@functools.cache
def load(file: Path):
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def run(file: str, name: str) -> str:
    import torch

    try:
        test = getattr(load(Path(file)), name)
        torch.manual_seed(0)
        test()
    except unittest.SkipTest as reason:
        return f"skipped: {reason}"
    except Exception:  # noqa: BLE001 - the boundary: whatever a test raises is its outcome
        return traceback.format_exc()
    return ""


def main(launch: str) -> None:
    # what the tests print must not come between the outcomes
    outcomes = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    runpy.run_path(launch)["make_importable"]()
    import torch

    torch.set_num_threads(1)
    for line in sys.stdin:
        outcomes.write(json.dumps(run(*line.rstrip("\n").rsplit(" ", 1))) + "\n")
        outcomes.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
