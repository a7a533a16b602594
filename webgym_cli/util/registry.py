"""Registries of user extensions: environments, tools, reward functions, estimators, export formats, ...

An item is named in one of four ways: built in (`module:attribute`, imported on first use), registered by code that the
setting `plugins` imports, provided by an installed package through an entry point, or by its location
(`module:attribute` or `path/to/file.py:attribute`).
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Generic, TypeVar

from webgym_cli.errors import UsageError, WebGymError
from webgym_cli.util.text import name_first
from webgym_cli.util.user_code import mark_user_module, user_code

Item = TypeVar("Item")

# Maximum length of a quoted foreign exception message.
_REASON = 300
# Maximum number of names in a message.
_NAMES = 12
# Locations that stored data may name, because the settings do.
_ALLOWED: set[str] = set()
# Folders of users' modules.
_FOLDERS: list[Path] = []


@dataclass(frozen=True, slots=True)
class RegisteredItem(Generic[Item]):
    """One entry of a registry's listing."""

    name: str
    origin: str
    """`built in`, `plugins`, `settings`, or the name of the package."""
    item: Item | None
    """None if it can't be loaded."""
    problem: str = ""
    """Why it can't be loaded."""


@dataclass(frozen=True, slots=True)
class Registry(Generic[Item]):
    """Items of one kind by name."""

    noun: str
    """Name of an item's kind in messages, such as `tool`."""
    setting: str
    """The settings key that refers to an item, for messages."""
    item_type: type[Item]
    builtin: Mapping[str, str] = field(default_factory=dict)
    """Name -> `module:attribute` of the built-in items."""
    registered: dict[str, Item] = field(default_factory=dict)
    """Items registered by code, by name."""
    usage: str = ""
    """How to make an item, for hints. Default: with the decorator named like the noun, of the module `package`."""
    package: str = ""
    entry_point_group: str = ""
    """Entry point group by which packages add items. Default: the plural of the noun, such as `webgym.tools`."""

    def register(self, name: str, item: Item) -> Item:
        """Register an item under a name and return it. Raises `UsageError` for a taken name, or another kind."""
        if not name or ":" in name:
            raise UsageError(f"{name!r} is no name of a {self.noun}", hint="a name is not empty and has no colon")
        if name in self.builtin or self.registered.get(name, item) is not item:
            raise UsageError(f"{self.noun} {name!r}: the name is taken", hint=f"register your {self.noun} as another")
        self.registered[name] = self._require_item(name, item)
        return item

    def names(self) -> list[str]:
        """Return the names known to `find`, sorted, without importing anything."""
        return sorted({*self.builtin, *self.registered, *(point.name for point in self._points())})

    def find(self, name: str) -> Item:
        """Return the item of a name, `module:attribute` or `file.py:attribute`. Raises `UsageError`."""
        if ":" in name:
            return self._load(name, name)
        if name in self.registered:
            return self.registered[name]
        if place := self.builtin.get(name):
            return self._load(name, place)
        points = [point for point in self._points() if point.name == name]
        if len(points) > 1:
            packages = ", ".join(sorted(map(_package, points)))
            raise UsageError(f"{self.setting}: several packages bring a {self.noun} {name}: {packages}")
        if not points:
            word = self.noun.replace(" ", "_")
            own = f"my_module:my_{word} or path/to/file.py:my_{word}"
            hint = f"{suggest_name(name, self.names())} (your own: {own})"
            raise UsageError(f"{self.setting}: there is no {self.noun} {name!r}", hint=hint)
        return self._load(name, points[0].value)

    def find_stored(self, name: str) -> Item:
        """Return the item that stored data names: by its location only if the settings name that too."""
        if ":" in name and name not in _ALLOWED:  # anyone can write data: it must not cause imports
            hint = f"-s {self.setting}={name} loads it, if you trust its author"
            raise UsageError(f"{self.setting}: there is no {self.noun} {name!r}", hint=hint)
        return self.find(name)

    def known(self, named: Iterable[str] = ()) -> Iterator[RegisteredItem[Item]]:
        """Yield the built-in items, the registered ones, those of packages, and those that settings name by location.

        Items that can't be loaded are returned with their problem.
        """
        for name, item in self.registered.items():
            yield RegisteredItem(name, "plugins", item)
        places = [(name, "built in", place) for name, place in self.builtin.items()]
        places += [
            (point.name, _package(point), point.value) for point in self._points() if point.name not in self.builtin
        ]
        places += [(name, "settings", name) for name in named if ":" in name]
        for name, origin, place in places:
            try:
                yield RegisteredItem(name, origin, self._load(name, place))
            except WebGymError as error:
                yield RegisteredItem(name, origin, None, str(error))

    def _points(self) -> list[EntryPoint]:
        group = self.entry_point_group or f"webgym.{self.noun.replace(' ', '_')}s"
        return sorted(_read_entry_points().select(group=group), key=lambda point: point.name)

    def _load(self, name: str, place: str) -> Item:
        where, _, attribute = place.rpartition(":")
        hint = f"look at {place}; webgym tools list shows what can be loaded"
        with _name_user_errors(f"{self.setting}: {name}", "loaded", hint):
            module = _import_place(where) if name == place else importlib.import_module(where)
            mark_user_module(module)
            value = attrgetter(attribute.strip())(module)
        return self._require_item(name, value)

    def _require_item(self, name: str, value: object) -> Item:
        if not isinstance(value, self.item_type):
            raise UsageError(
                f"{self.setting}: {name} is no {self.noun}, it is a {type(value).__name__}",
                hint=self.usage or f"from {self.package} import {self.noun}, and put @{self.noun} over it",
            )
        return value


def list_constants(module: str, *names: str) -> dict[str, str]:
    """Return built-in items that are a module's constants, whose names are the items' in capital letters."""
    return {name: f"{module}:{name.upper().replace('-', '_')}" for name in names}


def list_functions(module: str, *names: str) -> dict[str, str]:
    """Return built-in items that are a module's functions of the same names."""
    return {name: f"{module}:{name}" for name in names}


def lazy(place: str) -> Callable[..., Any]:
    """Return a function that calls the one at `module:attribute`, which is imported on the first call."""
    module, _, attribute = place.partition(":")
    return lambda *args, **named: getattr(importlib.import_module(module), attribute)(*args, **named)


def import_plugins(names: Iterable[str]) -> None:
    """Import modules (`my_module`) and files (`path/to/file.py`), whose code registers items. Raises `UsageError`."""
    for name in names:
        hint = f"python {name}" if name.endswith(".py") else f"python -c 'import {name}'"
        with _name_user_errors(f"plugins: {name}", "imported", hint):
            mark_user_module(_import_place(name))


@contextmanager
def _name_user_errors(what: str, done: str, hint: str) -> Iterator[None]:
    """Convert what a user's module raises in the block to a `UsageError` that names it."""
    try:
        yield
    except WebGymError as error:  # a decorator that refused its argument
        raise UsageError(f"{what}: {error}", hint=error.hint) from error
    except (Exception, SystemExit) as error:  # boundary to a user's module, which may raise anything
        reason = " ".join(str(error).split())[:_REASON]
        raise UsageError(f"{what} can't be {done}: {type(error).__name__}: {reason}", hint=hint) from error


def allow_places(names: Iterable[str]) -> None:
    """Allow stored data to name these locations."""
    _ALLOWED.update(name for name in names if ":" in name)


def absolute_place(name: Any) -> Any:
    """Return the name of a Python file, or of an item in one, with an absolute path; other values unchanged."""
    if not isinstance(name, str):
        return name
    match = re.fullmatch(r"(.*\.py)(:[^:]*)?", name, re.DOTALL)
    return f"{Path(match[1]).resolve()}{match[2] or ''}" if match else name


def portable_plugins(names: Iterable[str]) -> list[str]:
    """Return plugins so that other processes find them from any working directory: files as absolute paths."""
    here = Path.cwd()
    portable = []
    for name in names:
        file = name if name.endswith(".py") else getattr(sys.modules.get(name), "__file__", None) or ""
        # packages keep their names, because their modules import each other by them
        own = file and (name.endswith(".py") or ("." not in name and Path(file).resolve().parent == here.resolve()))
        portable.append(str(Path(file).resolve()) if own else name)
    return portable


@cache
def _read_entry_points() -> Any:
    """Return what all installed packages register, in Python 3.11 another type than later. Reads a file of each."""
    return entry_points()


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value


def _import_place(where: str) -> ModuleType:
    """Import a Python file, which may import those beside it, or a module, also from the working directory."""
    is_file = where.endswith(".py")
    here = str(Path(where).resolve().parent if is_file else Path.cwd())
    # last, and only for what a user names: no such folder may provide webgym's own imports
    if here not in sys.path:
        sys.path.append(here)
        _FOLDERS.append(Path(here))
    return _module_of_file(Path(where)) if is_file else importlib.import_module(where)


class _UncachedLoader(SourceFileLoader):
    """Loads a Python file from its source.

    Bytecode caches compare size and whole seconds: a check edited within a second ran as it was before.
    """

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _module_of_file(path: Path) -> ModuleType:
    """Import a file as a module of its own, once."""
    if not path.is_file():
        hint = "a relative path starts at the current folder; of a run whose file was moved, give the setting again"
        raise UsageError(f"there is no file {path.resolve()}", hint=hint)
    name = f"webgym_file_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path, loader=_UncachedLoader(name, str(path)))
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    _refuse_shared_names(path.resolve())
    sys.modules[name] = module
    try:
        with user_code():
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _refuse_shared_names(path: Path) -> None:
    """Raise `UsageError` if a file would get a module of another user's file in place of the one beside it."""
    from webgym_cli.util.user_code import list_sources

    for source in [file for file in list_sources(path) if file != path and file.is_relative_to(path.parent)]:
        name = ".".join(source.relative_to(path.parent).with_suffix("").parts).removesuffix(".__init__")
        other = Path(getattr(sys.modules.get(name), "__file__", None) or source)
        if other.resolve() != source.resolve() and any(map(other.is_relative_to, _FOLDERS)):
            raise UsageError(f"{path} would get {other} in place of {source}", hint="rename one of the two")


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return a question with the closest known name; the first known names if none is close."""
    names = list(known)
    if near := get_close_matches(name, names, n=1):
        return f"did you mean {near[0]}?"
    return f"there are: {name_first(names, _NAMES)}"
