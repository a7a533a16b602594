"""`UserFunction`: a function of a user's that receives the fields of a task by name, called with a deadline."""

from __future__ import annotations

import hashlib
import inspect
import math
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from webgym_cli.errors import BoundaryError, UsageError
from webgym_cli.records.base import describe_invalid
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Task
from webgym_cli.tools.workers import TooLateError, Workers
from webgym_cli.util.user_code import list_sources

# Maximum length of a quoted exception of a user's function, in characters.
_REASON = 300


def digest_source(function: Callable[..., Any]) -> str:
    """Return the SHA-256 of the file that defines a function, of its code if there is none; of another object's name.

    With files beside it that it imports, or that they import, it is that of all of them. A partial function is the one
    that it calls, an object that can be called its class's.
    """
    given = inspect.unwrap(function.func if isinstance(function, partial) else function)
    code = getattr(given, "__code__", None) or getattr(type(given).__call__, "__code__", None)
    if code is None:  # written in C
        return hashlib.sha256(getattr(given, "__qualname__", type(given).__qualname__).encode()).hexdigest()
    path = Path(code.co_filename)
    if not path.is_file():
        return hashlib.sha256(code.co_code).hexdigest()
    first, *others = list_sources(path).values()
    return hashlib.sha256(first + b"".join(hashlib.sha256(other).digest() for other in others)).hexdigest()


@dataclass(frozen=True)
class UserFunction:
    """A user's function; arguments are passed by name. A call in Python calls the decorated function."""

    name: str
    description: str
    """The first line of its docstring."""
    function: Callable[..., Any]
    """Sync or async."""
    required: tuple[str, ...]
    """Arguments without a default."""
    optional: tuple[str, ...]
    takes_all: bool
    """Whether it has a `**fields` parameter, which receives all other fields."""
    timeout: float | None = None
    """Time limit of a call in seconds; None: `agent.reward_timeout`."""

    noun: ClassVar[str] = "function"
    offered: ClassVar[tuple[str, ...]] = ("context",)
    """Arguments that every episode offers in addition to its task's fields."""
    living: ClassVar[tuple[str, ...]] = ("context",)
    """Those of them that are objects, not data."""
    hides_fields: ClassVar[bool] = False
    """Whether an offered argument may hide a field of the same name; otherwise such a task is refused."""

    @classmethod
    def of(cls, function: Callable[..., Any], name: str, *, timeout: float | None = None) -> Self:
        """Make one from a function. Raises `UsageError` unless it can be called by name, in a valid time limit."""
        if not hasattr(inspect.unwrap(function), "__code__") or isinstance(function, type):
            raise UsageError(f"{cls.noun} {name}: a {type(function).__name__} is no function", hint="use def or lambda")
        if timeout is True or not (timeout is None or (isinstance(timeout, int | float) and 0 < timeout < math.inf)):
            raise UsageError(f"{cls.noun} {name}: timeout={timeout!r} is no number of seconds", hint="timeout=10")
        required: list[str] = []
        optional: list[str] = []
        takes_all = False
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                takes_all = True
            # Fields are passed by name.
            elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                raise UsageError(f"{cls.noun} {name}: {parameter} has no name that a field could have")
            else:
                (required if parameter.default is parameter.empty else optional).append(parameter.name)
        description = inspect.cleandoc(function.__doc__ or "").partition("\n")[0]
        return cls(name, description, function, tuple(required), tuple(optional), takes_all, timeout)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the decorated function."""
        return self.function(*arguments, **named)

    def missing(self, fields: Collection[str]) -> tuple[str, ...]:
        """Return the required arguments that a task with these fields lacks."""
        return tuple(name for name in self.required if name not in fields and name not in self.offered)

    def bound(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given values that it has parameters for, as copies: what it changes in a list is not stored."""
        names = {*self.required, *self.optional}
        others = given.keys() - self.living if self.takes_all else set()
        own = {name: value for name, value in given.items() if name in names or name in others}
        return {name: value if name in self.living else deepcopy(value) for name, value in own.items()}

    async def call(self, workers: Workers, given: Mapping[str, Any], seconds: float) -> Any:
        """Call it and return its result. `seconds`: the limit unless it has its own. Raises `BoundaryError`."""
        # In its thread: what a tool returned may be long, or an object that can't be copied.
        return await self.run(workers, lambda: self.function(**self.bound(given)), seconds)

    async def run(self, workers: Workers, part: Callable[[], Any], seconds: float) -> Any:
        """Run a part of it, as of a generator, as `call` does the whole."""
        seconds = self.timeout or seconds
        try:
            return await workers.call(part, seconds)
        except BoundaryError:
            raise
        except Exception as error:
            raise self.explain(error, seconds) from error

    def explain(self, error: Exception, seconds: float = 0.0) -> BoundaryError:
        """Return the failure of a call: the function, what it raised, and the line of its file that did."""
        reason = type(error).__name__
        with suppress(Exception):  # its class may have a text of its own, which raises
            reason += f": {describe_invalid(error)}"
        if isinstance(error, TooLateError):
            reason = f"it took more than {seconds:g} s (its timeout, or agent.reward_timeout)"
        words = " ".join(reason.split())[:_REASON].removesuffix(":")  # `assert` raises without a text
        code, places = inspect.unwrap(self.function).__code__, traceback.extract_tb(error.__traceback__)
        # The innermost line of its file; without one its first.
        lines = [code.co_firstlineno, *(place.lineno for place in places if place.filename == code.co_filename)]
        return BoundaryError(
            FailureKind.ENVIRONMENT_ERROR,
            f"the {self.noun} {self.name} failed: {words} ({Path(code.co_filename).name}:{lines[-1]})",
        )

    def require_fields(self, task: Task, fields: Mapping[str, object], setting: str) -> None:
        """Raise `UsageError` for a task that lacks a field that the function requires, or has one that it can't get."""
        if missing := self.missing(fields):
            raise UsageError(
                f"{setting}: {self.name} needs {', '.join(missing)}, which the task {task.id} does not have",
                hint=f"it has {', '.join(dict.fromkeys((*self.offered, *fields)))}; "
                f"name another {self.noun}, or give the argument a default",
            )
        hidden = [name for name in (*self.required, *self.optional) if name in self.offered and name in task.extra]
        if hidden and not self.hides_fields:
            raise UsageError(
                f"{setting}: {self.name} has an argument {hidden[0]} of its own, but the task {task.id} has a field "
                f"{hidden[0]}",
                hint="give the field another name",
            )
