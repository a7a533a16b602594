"""What stands for the objects that a pickle names: words, fields and entries, and no behaviour of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from webgym_cli.errors import UsageError

# What may be a key: hashing deep tuples would overflow the stack.
ATOMS = (str, int, float, bool, bytes, type(None))


class PickleRefused(UsageError):
    """A pickle is damaged, too large, or names something that is not data."""


@dataclass(slots=True, eq=False)
class Stub:
    """What stands for an object of theirs: its class's name and what was in it."""

    name: str
    """Module and class, with dots."""
    arguments: tuple[Any, ...] = ()
    """What it was made with."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Its attributes."""
    items: dict[Any, Any] = field(default_factory=dict)
    """Its entries, where its class is a dict's."""
    elements: list[Any] = field(default_factory=list)
    """Its entries, where its class is a list's."""

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute, else an entry, else the default."""
        return self.fields.get(name, self.items.get(name, default))

    def build(self, state: Any) -> None:
        """Take the attributes: a dict, or a pair of dicts (the second for slots)."""
        # The second dict of a pair is the state of __slots__.
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
    """A class or function that a pickle named and that is known. It is a word, not the thing."""

    dotted: str
    make: Callable[..., Any]
    """Makes what stands for an object of it, of the arguments that the pickle gives."""

    def __call__(self, *arguments: Any) -> Any:
        """Make what stands for an object."""
        return self.make(*arguments)


@dataclass(frozen=True, slots=True)
class AllowedNames:
    """The names that a file may use, and what is made of each."""

    records: frozenset[str] = frozenset()
    """Classes whose objects become `Stub`."""
    packages: tuple[str, ...] = ()
    """Packages of which every class is such a record."""
    makers: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """Functions and classes that are done by ours: name -> ours, called with the arguments."""

    def find(self, dotted: str) -> Name | None:
        """Return a name; None where a file may not use it."""
        maker = self.makers.get(dotted) or PLAIN.get(dotted)
        is_record = dotted in self.records or any(dotted.startswith(f"{package}.") for package in self.packages)
        return Name(dotted, maker or _make_stub(dotted)) if maker or is_record else None


def _make_reconstructed(of: Any, base: Any, state: Any) -> Any:
    """Stand for `copyreg._reconstructor`, by which old protocols make an object without calling its class."""
    is_plain = isinstance(base, Name) and base.dotted == "builtins.object"
    if not isinstance(of, Name) or not is_plain or state is not None:
        raise PickleRefused("an object of an unknown making")
    return Stub(of.dotted)


def _make_encoded(text: str, encoding: str = "") -> bytes:
    """Stand for `_codecs.encode`, by which protocol 2 writes bytes."""
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
    """Return a dict of pairs. Raises `PickleRefused` for keys that are more than a text or a number."""
    items_by_key = {}
    for key, value in pairs:
        # Hashing a deep tuple overflows the C stack.
        if not isinstance(key, ATOMS):
            raise PickleRefused("a dict with keys that are neither texts nor numbers")
        items_by_key[key] = value
    return items_by_key


def _make_list(items: Any = ()) -> list[Any]:
    if not isinstance(items, list | tuple):
        raise PickleRefused("a container made of something else")
    return list(items)


# Names of the standard library that are nothing but data. A set becomes a list.
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
