"""Start-up hook of a role environment on a CPU; `cpu_fixes` copies this file there and says why.

Runs in every Python process of that environment, so it imports only modules that are built into the interpreter: it
registers a finder, which acts when one of the two modules below is imported, and makes garbage collections rarer.
"""

# ruff: noqa: D102 - the methods are Python's import protocol
from __future__ import annotations

import gc
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

# Declared operators live as long as their library object.
KEPT: list[object] = []


def declare_missing_ops(extension: ModuleType) -> None:
    """Declare the operators that torchvision's Python code refers to while it is imported."""
    import torch

    if torch.version.cuda is None and not extension._has_ops():
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        KEPT.append(library)


def tolerate_missing_library(utils: ModuleType) -> None:
    """Make torchaudio take a library that can't be loaded for one that is not there, which it provides for."""
    import torch

    load = utils._load_lib

    def load_or_not(name: str) -> bool:
        try:
            return bool(load(name))
        except OSError:
            return False

    if torch.version.cuda is None:
        utils._load_lib = load_or_not  # type: ignore[attr-defined]


# What is done right after a module has been executed, before anything that comes after it.
AFTER_IMPORT: dict[str, Callable[[ModuleType], None]] = {
    "torchvision.extension": declare_missing_ops,
    "torchaudio._extension.utils": tolerate_missing_library,
}


class Finder:
    """Leaves the finding to Python and adds a step to the loading."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        step = AFTER_IMPORT.get(name)
        if step is None:
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_mend(module: ModuleType) -> None:
            execute(module)
            step(module)

        spec.loader.exec_module = execute_and_mend  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, Finder)
# With Python's 700 allocations a fifth of the time to import vLLM or LLaMA-Factory is spent on collections.
gc.set_threshold(5_000, *gc.get_threshold()[1:])
