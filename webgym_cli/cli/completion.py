"""Shell completion of names and values; paths are completed by the shell. It runs on a key press: imports are few."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import chain
from typing import Any

# Text without characters that are special in a shell.
_PLAIN = re.compile(r"[\w./:=@%+,~-]+")


def settings_files() -> list[str]:
    """Complete the names of shipped settings files."""
    from webgym_cli.config.shipped import shipped_root

    return sorted(path.stem for path in shipped_root().glob("*.yaml"))


def settings(incomplete: str) -> list[str]:
    """Complete settings keys, and after a key its values: the choices, or else the default.

    Values are added as soon as one key is left, because a shell ends the word after a single completion.
    """
    from webgym_cli.config.sources import known_keys

    known = known_keys()
    key, equals, _ = incomplete.partition("=")
    near = [name for name in known if name == key or (not equals and name.startswith(key))]
    # Keys end in =, so that the shell adds no space.
    if len(near) > 1:
        return [f"{name}=" for name in near]
    return [
        f"{name}={value}"
        for name in near
        for value in ("", *_values(known[name]))
        if not value or _PLAIN.fullmatch(value)
    ]


def choices(*names: str) -> Callable[[], list[str]]:
    """Return a completion of fixed names."""
    return lambda: list(names)


def registry_names(place: str, *more: str) -> Callable[[], list[str]]:
    """Return a completion of the names in a registry (`module:attribute`); those of a `plugins` file are unknown."""
    module, _, attribute = place.partition(":")
    return lambda: [*getattr(import_module(module), attribute).names(), *more]


tasks = choices("miniwob:all", "sites:all", "webarena:fixture")


def _values(field: Any) -> Iterator[str]:
    """Yield the values of a setting in command-line syntax."""
    from webgym_cli.util.json_values import as_text

    values = list(_choices(field.annotation)) or [field.get_default(call_default_factory=True)]
    yield from (as_text(item, default=str) for item in values)


def _choices(kind: Any) -> Iterator[object]:
    """Yield the values of an enumerated type."""
    from types import NoneType, UnionType
    from typing import Literal, Union, get_args, get_origin

    if kind is bool:
        yield from (True, False)
    elif get_origin(kind) is Literal:
        yield from get_args(kind)
    elif get_origin(kind) in (Union, UnionType):
        parts = get_args(kind)
        closed = [list(_choices(part)) for part in parts if part is not NoneType]
        if all(closed):
            yield from chain.from_iterable(closed)
            yield from [None] * (NoneType in parts)
