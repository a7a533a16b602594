"""Stubs for the objects in a pickle: names, fields and entries, without behaviour."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from webgym_cli.errors import UsageError

# Types of dict keys: hashing a deeply nested tuple would overflow the C stack.
ATOMS = (str, int, float, bool, bytes, type(None))


class PickleRefused(UsageError):
    """A pickle is damaged, too large, or names something that is not data."""


@dataclass(slots=True, eq=False)
class Stub:
    """Stub of a pickled object: the name of its class, and its contents."""

    name: str
    """Module and class, with dots."""
    arguments: tuple[Any, ...] = ()
    """Constructor arguments."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Attributes."""
    items: dict[Any, Any] = field(default_factory=dict)
    """Entries, if its class is a subclass of dict."""
    elements: list[Any] = field(default_factory=list)
    """Entries, if its class is a subclass of list."""

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute, else an entry, else the default."""
        return self.fields.get(name, self.items.get(name, default))

    def build(self, state: Any) -> None:
        """Set the attributes from a pickled state: a dict, or a pair of dicts (the second for `__slots__`)."""
        parts = state if isinstance(state, tuple) and len(state) == 2 else (state,)
        for part in parts:
            if isinstance(part, dict):
                self.fields.update({str(key): value for key, value in part.items()})
            elif part is not None:
                self.arguments = (*self.arguments, part)


def _make_stub(dotted: str) -> Callable[..., Stub]:
    return lambda *arguments: Stub(dotted, arguments)


@dataclass(frozen=True, slots=True)
class Name:
    """An allowed class or function that a pickle names: its name, not the object."""

    dotted: str
    make: Callable[..., Any]
    """Makes the substitute of an object from the pickled arguments."""

    def __call__(self, *arguments: Any) -> Any:
        """Make the substitute of an object."""
        return self.make(*arguments)


def find_name(dotted: str, records: Collection[str]) -> Name | None:
    """Look up a name; None if a file may not use it. `records`: classes whose objects become `Stub`."""
    maker = PLAIN.get(dotted)
    return Name(dotted, maker or _make_stub(dotted)) if maker or dotted in records else None


def _make_reconstructed(of: Any, base: Any, state: Any) -> Any:
    """Substitute of `copyreg._reconstructor`, with which old protocols make an object without calling its class."""
    is_plain = isinstance(base, Name) and base.dotted == "builtins.object"
    if not isinstance(of, Name) or not is_plain or state is not None:
        raise PickleRefused("an object of an unknown making")
    return Stub(of.dotted)


def _make_encoded(text: str, encoding: str = "") -> bytes:
    """Substitute of `_codecs.encode`, with which protocol 2 writes bytes."""
    if not isinstance(text, str) or encoding != "latin1":
        raise PickleRefused("bytes in another encoding than latin1")
    return text.encode("latin1")


def _make_bytes(data: Any = b"") -> bytes:
    if not isinstance(data, bytes | bytearray):
        raise PickleRefused("bytes made of something else")
    return bytes(data)


def _make_path(*parts: Any) -> str:
    if not all(isinstance(part, str) for part in parts):
        raise PickleRefused("a path that is not made of texts")
    return str(PurePosixPath(*parts))


def build_dict(pairs: Iterable[Any]) -> dict[Any, Any]:
    """Build a dict from pairs. Raises `PickleRefused` for keys of types other than `ATOMS`."""
    items_by_key = {}
    for key, value in pairs:
        if not isinstance(key, ATOMS):
            raise PickleRefused("a dict with keys that are neither texts nor numbers")
        items_by_key[key] = value
    return items_by_key


def _make_list(items: Any = ()) -> list[Any]:
    if not isinstance(items, list | tuple):
        raise PickleRefused("a container made of something else")
    return list(items)


# Substitutes of standard library names that are pure data. A set becomes a list.
PLAIN: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": lambda pairs=(): build_dict(_make_list(pairs)),
    "collections.defaultdict": lambda *_: {},
    "builtins.set": _make_list,
    "builtins.frozenset": _make_list,
    "builtins.list": _make_list,
    "builtins.bytes": _make_bytes,
    "builtins.bytearray": _make_bytes,
    "builtins.object": _make_stub("builtins.object"),
    "copyreg._reconstructor": _make_reconstructed,
    "_codecs.encode": _make_encoded,
    **{
        f"pathlib.{part}{kind}": _make_path for part in ("", "_local.") for kind in ("PosixPath", "WindowsPath", "Path")
    },
    **{
        f"datetime.{kind}": _make_stub(f"datetime.{kind}")
        for kind in ("datetime", "date", "time", "timedelta", "timezone")
    },
}
