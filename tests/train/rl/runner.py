"""Runs the tests of one file in a role's interpreter, which has torch but neither pytest nor webgym.

    python runner.py START FILE

START is the room's `launch.py`. Says in the last line of stdout, as JSON, what became of each function `test_...`: ""
for passed, "skipped: ..." or a traceback.
"""

import importlib.util
import json
import runpy
import sys
import traceback
import unittest
from pathlib import Path


def load(file: Path):
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def run(test) -> str:
    try:
        test()
    except unittest.SkipTest as reason:
        return f"skipped: {reason}"
    except Exception:  # noqa: BLE001 - the boundary: whatever a test raises is its outcome
        return traceback.format_exc()
    return ""


def main(start: str, file: str) -> None:
    runpy.run_path(start)["make_importable"]()
    import torch

    torch.set_num_threads(1)
    tests = {name: value for name, value in vars(load(Path(file))).items() if name.startswith("test_")}
    outcomes = {}
    for name, test in tests.items():
        torch.manual_seed(0)
        outcomes[name] = run(test)
    sys.stdout.write(f"\n{json.dumps(outcomes)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
