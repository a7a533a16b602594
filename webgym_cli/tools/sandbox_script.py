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

# Exit status if this machine can't provide the sandbox.
REFUSED = 1
FILENAME = "<code>"
# Modules that are imported in advance, if the code imports them, on a machine whose sandbox can't open files.
PRELOADED = """
    abc array base64 bisect calendar cmath collections contextlib copy csv dataclasses datetime decimal enum
    fractions functools hashlib heapq io itertools json math numbers operator os pprint random re statistics
    string struct sys textwrap threading time typing unicodedata zlib
"""


def load_neighbour(name: str) -> Any:
    """Import a file of this folder by its path: the package's `__init__` needs packages that are not on the path."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def preload(source: str, packages: list[str]) -> None:
    """Import the harmless modules that the code imports, because the filter will block opening their files."""
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
    """Finds the given packages, and no others that are installed in the same folder."""

    def __init__(self, folders: dict[str, str]) -> None:
        self._folders = folders

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of a given package; Python's own finder finds its submodules."""
        folder = self._folders.get(name)
        if folder is None:
            return None
        where = [folder]
        return importlib.util.spec_from_file_location(name, f"{folder}/__init__.py", submodule_search_locations=where)


def execute(source: str) -> int:
    """Run the code and print the value of a final expression, as the interactive interpreter does.

    Returns the exit status: 1 after an exception, whose traceback is printed, else 0.
    """
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
    except BaseException as error:  # noqa: BLE001  boundary to untrusted code: its exceptions are output
        sys.stdout.write("".join(_format(error)))
        return 1
    return 0


def _format(error: BaseException) -> list[str]:
    """Return the traceback without the frames of this file."""
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
    os.dup2(1, 2)  # stderr before this belongs to the sandbox itself
    return execute(job["code"])


if __name__ == "__main__":
    sys.exit(main())
