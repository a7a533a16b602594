"""Tells code of a user's, such as a plugin or a check, from webgym's own."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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
