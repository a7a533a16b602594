"""Finds what users add by decorator: by its built-in name, by an entry point, or by module or file and name."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar

from webgym_cli.errors import UsageError, WebGymError

Item = TypeVar("Item")

_REASON = 300
"""Characters of a foreign exception's words that are kept."""


@dataclass(frozen=True, slots=True)
class Known(Generic[Item]):
    """One that can be named without saying where it is."""

    name: str
    origin: str
    """`built in`, or the package that brings it."""
    item: Item | None
    """None: it can't be loaded."""
    problem: str = ""
    """Why it can't be loaded."""


@dataclass(frozen=True, slots=True)
class Plugins(Generic[Item]):
    """One kind of plugin."""

    word: str
    """What people call it: `tool`."""
    setting: str
    """The settings key that names it."""
    group: str
    """The group of entry points by which packages add theirs."""
    room: str
    """The package that has the decorator."""
    kind: type[Item]
    built_in: Mapping[str, str]
    """Name -> `module:attribute`."""

    def find(self, named: str) -> Item:
        """Return what a name, `module:attribute` or `file.py:attribute` stands for. Raises `UsageError`."""
        if ":" in named:
            return self._load(named, named)
        if place := self.built_in.get(named):
            return self._load(named, place)
        found = [point for point in self._points() if point.name == named]
        if len(found) > 1:
            packages = ", ".join(sorted(map(_package, found)))
            raise UsageError(f"{self.setting}: several packages bring a {self.word} {named}: {packages}")
        if not found:
            known = ", ".join(sorted({*self.built_in, *(point.name for point in self._points())}))
            hint = f"there are: {known}; your own: my_module:my_{self.word} or path/to/file.py:my_{self.word}"
            raise UsageError(f"{self.setting}: there is no {self.word} {named!r}", hint=hint)
        return self._load(named, found[0].value)

    def known(self, named: Iterable[str] = ()) -> Iterator[Known[Item]]:
        """Yield the built-in ones, those of installed packages, and those that settings name by module or file.

        Each that can't be loaded comes with its problem.
        """
        places = [(name, "built in", place) for name, place in self.built_in.items()]
        places += [
            (point.name, _package(point), point.value) for point in self._points() if point.name not in self.built_in
        ]
        places += [(name, "settings", name) for name in named if ":" in name]
        for name, origin, place in places:
            try:
                yield Known(name, origin, self._load(name, place))
            except WebGymError as error:
                yield Known(name, origin, None, str(error))

    def _points(self) -> list[EntryPoint]:
        return sorted(entry_points(group=self.group), key=lambda point: point.name)

    def _load(self, named: str, place: str) -> Item:
        where, _, attribute = place.rpartition(":")
        try:
            module = _module_of_file(Path(where)) if where.endswith(".py") else _module(where)
            found: object = module
            for part in attribute.strip().split("."):
                found = getattr(found, part)
        except WebGymError as error:  # a decorator that refused what it was given
            raise UsageError(f"{self.setting}: {named}: {error}", hint=error.hint) from error
        except Exception as error:  # the boundary to a user's module, which may raise anything
            reason = " ".join(str(error).split())[:_REASON]
            hint = f"webgym tools list shows what can be loaded; the place is {place}"
            raise UsageError(
                f"{self.setting}: {named} can't be loaded: {type(error).__name__}: {reason}", hint=hint
            ) from error
        if not isinstance(found, self.kind):
            raise UsageError(
                f"{self.setting}: {named} is no {self.word}, it is a {type(found).__name__}",
                hint=f"from {self.room} import {self.word}, and put @{self.word} over it",
            )
        return found


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value


def _module(name: str) -> ModuleType:
    """Import a module; one in the working directory too, as an installed program would not find it."""
    here = os.getcwd()  # noqa: PTH109 - as sys.path has it: a text
    if here not in sys.path:
        sys.path.append(here)
    return importlib.import_module(name)


def _module_of_file(path: Path) -> ModuleType:
    """Run a file as a module of its own, once."""
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    name = f"webgym_file_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
