"""Runs untrusted Python code: started as `python -I -S sandbox_script.py`, with a job as JSON on stdin.

The job: `code`, `parent` (process id), `cpu_seconds`, `memory` (bytes), `packages` (folders by name) and `filter` (the
parts of the system call filter in hexadecimal). Imports only the standard library: webgym is not on its path.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import json
import os
import sys
import traceback
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

# Exit status when the sandbox can't be had on this machine.
REFUSED = 1
FILENAME = "<code>"
# Modules that code may import where it can open no file; and the packages that it is given.
PRELOADED = """
    abc array base64 bisect calendar cmath collections contextlib copy csv dataclasses datetime decimal enum
    fractions functools hashlib heapq io itertools json math numbers operator os pprint random re statistics
    string struct sys textwrap threading time typing unicodedata zlib
"""


def load_neighbour(name: str) -> Any:
    """Import a file of this folder by its path: the package's own `__init__` needs what is not installed here."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def preload(source: str, packages: list[str]) -> None:
    """Import the harmless modules that the code imports: the filter will not let it open their files."""
    names: set[str] = set()
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names.add(node.module)
    for name in sorted(names):
        if name.partition(".")[0] in {*PRELOADED.split(), *packages}:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


class PackageFinder(MetaPathFinder):
    """Finds some packages beside the standard library, and none of their neighbours."""

    def __init__(self, folders: dict[str, str]) -> None:
        self._folders = folders

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return where a package is loaded from; its own modules are found by Python's usual finder."""
        folder = self._folders.get(name)
        if folder is None:
            return None
        where = [folder]
        return importlib.util.spec_from_file_location(name, f"{folder}/__init__.py", submodule_search_locations=where)


def execute(source: str) -> int:
    """Run the code; the value of a last line that is an expression is printed, as an interpreter does."""
    namespace = {"__name__": "__main__", "__builtins__": __builtins__}
    try:
        tree = ast.parse(source, FILENAME)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, FILENAME, "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), FILENAME, "eval"), namespace)
            if value is not None:
                sys.stdout.write(f"{value!r}\n")
    except SystemExit:
        return 0
    except BaseException as error:  # noqa: BLE001  the boundary to the code: whatever it raises is its output
        sys.stdout.write("".join(_format(error)))
        return 1
    return 0


def _format(error: BaseException) -> list[str]:
    """Return a traceback of the code's own frames, without ours."""
    report = traceback.TracebackException.from_exception(error)
    report.stack[:] = [frame for frame in report.stack if frame.filename != __file__]
    return list(report.format())


def main() -> int:
    """Confine this process and run the job's code."""
    sandbox = load_neighbour("sandbox")
    job = json.loads(sys.stdin.buffer.read())
    sys.meta_path.append(PackageFinder(job["packages"]))
    try:
        sandbox.confine(job, lambda: preload(job["code"], [*job["packages"]]))
    except (sandbox.NoSandboxError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return REFUSED
    os.dup2(1, 2)  # what is written to stderr before this is the sandbox's own
    return execute(job["code"])


if __name__ == "__main__":
    sys.exit(main())
