"""Runs tests of this folder in a role's interpreter, which has torch but neither pytest nor webgym.

    python runner.py
    python runner.py FILE.py

`PYTHONPATH` names the folder of `webgym_cli`. Each line of stdin names a test: `FILE.py FUNCTION`. For each it writes a
line to stdout, as JSON: "" for passed, "skipped: ..." or a traceback. With a FILE, it runs all of that file's tests on
the GPU (TEST_DEVICE=cpu: on the CPU), for people. The interpreter needs torch, transformers, pydantic and DeepSpeed.
"""

import functools
import importlib.util
import json
import os
import sys
import time
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


def run_file(file: str) -> int:
    """Run a file's tests on the device and tell of each; return the exit status."""
    import torch

    gpu = os.environ.setdefault("TEST_DEVICE", "cuda") != "cpu"
    if gpu and not torch.cuda.is_available():
        sys.stdout.write(f"{file}: skipped: torch {torch.__version__} sees no GPU\n")
        return 0
    sys.stdout.write(f"{torch.cuda.get_device_name() if gpu else 'CPU'}, torch {torch.__version__}\n")
    failed = 0
    for name in (name for name in vars(load(Path(file))) if name.startswith("test_")):
        began = time.monotonic()
        what = run(file, name)
        failed += bool(what) and not what.startswith("skipped: ")
        sys.stdout.write(f"{name}: {what or 'passed'} ({time.monotonic() - began:.1f} s)\n")
    return 1 if failed else 0


def main(file: str | None = None) -> int:
    if file:
        return run_file(file)
    # what the tests print must not come between the outcomes
    outcomes = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch

    torch.set_num_threads(1)
    for line in sys.stdin:
        outcomes.write(json.dumps(run(*line.rstrip("\n").rsplit(" ", 1))) + "\n")
        outcomes.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
