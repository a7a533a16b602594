"""Tells code of a user's, such as a plugin or a check, from webgym's own, and finds the files that it consists of."""

from __future__ import annotations

import ast
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TypeVar

_RUNS: ContextVar[bool] = ContextVar("runs", default=False)
_OWN = __name__.partition(".")[0]
# Names of the imported modules of users: plugins, packages with entry points.
_MODULES: set[str] = set()
Value = TypeVar("Value")


def mark_user_module(module: ModuleType) -> None:
    """Count a module, and all that an exception passes in its package, as code of a user's; webgym's own never is."""
    if (name := _top(module.__name__)) != _OWN:
        _MODULES.add(name)


def has_user_modules() -> bool:
    """Whether code of a user's was imported."""
    return bool(_MODULES)


def is_own(function: Callable[..., object]) -> bool:
    """Whether a function is webgym's own."""
    return _top(function.__module__) == _OWN


def find_first(error: BaseException) -> BaseException:
    """Return the first exception of a group, or of one within it; any other exception itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def find_place(error: BaseException) -> tuple[str, bool]:
    """Return `FILE:LINE in FUNCTION` of an exception that was raised, and whether that is code of a user's.

    The innermost line of a user's code that the exception passed; without one webgym's innermost line; else the
    innermost one.
    """
    frames = [
        (_top(frame.f_globals.get("__name__", "")), frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    for wanted in (_MODULES, {_OWN}, {name for name, _, _ in frames}):
        for name, frame, line in reversed(frames):
            if name in wanted:
                code = frame.f_code
                return f"{Path(code.co_filename).name}:{line} in {code.co_name}", name in _MODULES
    return "", False


def require_type(value: object, kind: type[Value], what: str) -> Value:
    """Return what a function of a user's returned. Raises `TypeError` that names the function for another type."""
    if not isinstance(value, kind):
        raise TypeError(f"{what} returned {type(value).__name__}, not {kind.__name__}")
    return value


def _top(name: str) -> str:
    return name.partition(".")[0]


@contextmanager
def user_code() -> Iterator[None]:
    """Send what the block prints to stderr: it is no data of the command."""
    token = _RUNS.set(True)
    try:
        yield
    finally:
        _RUNS.reset(token)


def runs_user_code() -> bool:
    """Whether the caller is called from code of a user's."""
    return _RUNS.get()


# Folders of installed packages, which are no part of a user's code that lies among them.
_INSTALLED = ("site-packages", "dist-packages")


@cache
def list_sources(path: Path) -> Mapping[Path, bytes]:
    """Return the content of a Python file and of those that it imports from its folder or its package's.

    Once for a file: it is what the process loaded, and each of a hundred checks in one file asks for it.
    """
    sources: dict[Path, bytes] = {}
    top = path.parent
    while (top / "__init__.py").is_file():
        top = top.parent
    waiting = [path]
    while waiting:
        file = waiting.pop(0)
        if file in sources or not file.is_file():
            continue
        sources[file] = file.read_bytes()
        with suppress(SyntaxError, ValueError):  # edited since it was loaded
            for level, parts in _list_imports(ast.parse(sources[file])):
                folders = file.parents[level - 1 : level] if level else dict.fromkeys((path.parent, top))
                for folder in folders:
                    if _is_foreign(parts[0], folder, path):
                        continue
                    places = [folder.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
                    waiting += [place / "__init__.py" for place in places]
                    waiting.append(folder.joinpath(*parts[:-1], f"{parts[-1]}.py"))
    return sources


def _is_foreign(name: str, folder: Path, path: Path) -> bool:
    """Whether a module in a folder is webgym's, or of another installed package than the file `path`."""
    own = path.relative_to(folder).parts[0] if path.is_relative_to(folder) else ""
    return name == "webgym_cli" or (folder.name in _INSTALLED and name != own.removesuffix(".py"))


def _list_imports(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """Yield the parts of each name that code may import as a module, with the number of leading dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module.split(".") if node.module else []
            # an imported name may be a module or something in one
            yield from (
                (node.level, parts) for parts in (module, *([*module, each.name] for each in node.names)) if parts
            )
