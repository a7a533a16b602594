"""Unpickler for untrusted data: names become stubs, so that nothing named in a pickle is imported or executed.

Reads torch's zip archives, its legacy format, gzip, or a plain pickle.
"""

from __future__ import annotations

import gzip
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from webgym_cli.imports.pickle_stubs import Name, PickleRefused, Stub, build_dict, find_name
from webgym_cli.util.files import open_regular

# Maximum number of opcodes in one pickle: a WebGym iteration of 20,000 steps has three million.
MAX_OPERATIONS = 100_000_000
# Maximum decompressed size of a gzip file, in bytes.
MAX_UNPACKED = 1 << 29
# Magic number at the beginning of torch's legacy format.
TORCH_MAGIC = 0x1950A86A20F9469CFC6C
_ZIP, _GZIP = b"PK\x03\x04", b"\x1f\x8b"
# Python 2's module names, which protocols below 3 use.
_PYTHON2_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}
# Opcodes with the standard library's implementation: they make plain values, call `find_class`, or call a name.
_DATA = (
    *("PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP"),
    *("NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"),
    *("FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE"),
    *("BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    *("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET"),
    *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "LIST", "EMPTY_DICT"),
    *("GLOBAL", "STACK_GLOBAL", "REDUCE", "INST", "OBJ"),
)
_DAMAGE = (
    *(pickle.UnpicklingError, struct.error, EOFError, AssertionError),
    *(ValueError, TypeError, LookupError, OverflowError, AttributeError),
)


def load(stream: IO[bytes], records: Collection[str], origin: str) -> Any:
    """Load the pickle at the stream's position; the stream is left after its end. `records`: classes it may name.

    Raises `PickleRefused`, whose message begins with `origin`, the file's name.
    """
    try:
        return _StubUnpickler(stream, records).load()
    except PickleRefused as error:
        raise PickleRefused(f"{origin}: {error}") from None
    except _DAMAGE as error:
        raise PickleRefused(f"{origin}: not a whole pickle: {error}") from None


# The unpickler in Python, not the one in C: there a forged memo number or byte array allocates gigabytes, a deep tuple
# as a key overflows the stack, and BUILD can set attributes of whatever `find_class` has returned.
class _StubUnpickler(pickle._Unpickler):
    """Unpickler whose stack holds only plain values, stubs and names, of which only names are callable."""

    stack: list[Any]
    pop_mark: Callable[[], list[Any]]
    read: Callable[[int], bytes]

    def __init__(self, stream: IO[bytes], records: Collection[str]) -> None:
        super().__init__(stream, encoding="latin1")
        self._records = records
        self.dispatch = _Limited(_OPERATIONS)  # type: ignore[assignment,misc]  # its own, for it counts

    def find_class(self, module: str, name: str) -> Name:
        """Return the `Name`, without importing it. Raises `PickleRefused` if it is not allowed."""
        dotted = f"{_PYTHON2_MODULES.get(module, module)}.{name}"
        if (known := find_name(dotted, self._records)) is None:
            raise PickleRefused(
                f"it asks for {dotted[:200]!r}, which is no record of this format: nothing of it was run"
            )
        return known

    def push(self, value: Any) -> None:
        """Push a value. `self.stack` is read on each call, because popping a mark replaces it."""
        self.stack.append(value)

    def new_with_keywords(self) -> None:
        """NEWOBJ_EX: the keywords become fields."""
        keywords = self.stack.pop()
        _STANDARD["REDUCE"](self)
        if keywords:
            self.stack.append(keywords)
            self.build()

    def build(self) -> None:
        """BUILD: set the state of the object on top of the stack. Raises `PickleRefused`."""
        state, target = self.stack.pop(), self.stack[-1]
        if not hasattr(type(target), "build"):
            raise PickleRefused(f"a state for a {type(target).__name__}: nothing of it was run")
        target.build(state)

    def extend(self, values: list[Any]) -> None:
        """APPEND, APPENDS, ADDITEMS: extend the list, or the stub's elements, on top of the stack."""
        target = self.stack[-1]
        elements = target.elements if isinstance(target, Stub) else target
        if not isinstance(elements, list):
            raise PickleRefused("entries for what is no list")
        elements.extend(values)

    def update(self, pairs: list[Any]) -> None:
        """SETITEMS: add alternating keys and values to the dict, or to the stub's items, on top of the stack."""
        target = self.stack[-1]
        items = target.items if isinstance(target, Stub) else target
        if not isinstance(items, dict):
            raise PickleRefused("entries for what is no dict")
        items.update(_pair_up(pairs))


def _pair_up(flat: list[Any]) -> dict[Any, Any]:
    return build_dict(zip(flat[::2], flat[1::2], strict=True))


_Operation = Callable[[_StubUnpickler], None]
_STANDARD = {name: cast(_Operation, pickle._Unpickler.dispatch[getattr(pickle, name)[0]]) for name in _DATA}
# Opcode -> operation. All others are refused: persistent ids, the extension registry, out-of-band buffers.
_OPERATIONS: dict[int, _Operation] = {
    **{getattr(pickle, name)[0]: operation for name, operation in _STANDARD.items()},
    # sets become lists: hashing a deep tuple would overflow the stack
    pickle.EMPTY_SET[0]: lambda self: self.push([]),
    pickle.FROZENSET[0]: lambda self: self.push(self.pop_mark()),
    pickle.ADDITEMS[0]: lambda self: self.extend(self.pop_mark()),
    pickle.APPENDS[0]: lambda self: self.extend(self.pop_mark()),
    pickle.APPEND[0]: lambda self: self.extend([self.stack.pop()]),
    pickle.DICT[0]: lambda self: self.push(_pair_up(self.pop_mark())),
    pickle.SETITEMS[0]: lambda self: self.update(self.pop_mark()),
    pickle.SETITEM[0]: lambda self: self.update([self.stack.pop(-2), self.stack.pop()]),
    pickle.NEWOBJ[0]: _STANDARD["REDUCE"],
    pickle.NEWOBJ_EX[0]: _StubUnpickler.new_with_keywords,
    pickle.BUILD[0]: _StubUnpickler.build,
    # as bytes: memory is allocated only for existing data, whatever the stated length
    pickle.BYTEARRAY8[0]: lambda self: self.push(self.read(*struct.unpack("<Q", self.read(8)))),
}


class _Limited(dict[int, _Operation]):
    """Table of opcodes that limits the number of lookups."""

    _left: int

    def __init__(self, operations: dict[int, _Operation]) -> None:
        super().__init__(operations)
        self._left = MAX_OPERATIONS

    def __getitem__(self, opcode: int) -> _Operation:
        self._left -= 1
        if self._left < 0:
            raise PickleRefused(f"more than {MAX_OPERATIONS} operations")
        if (operation := self.get(opcode)) is None:
            raise PickleRefused(f"its opcode {bytes([opcode])!r} is not data (tensors, for example)")
        return operation


class _Bounded:
    """A stream with a limit on its size, so that a forged length can't allocate memory."""

    def __init__(self, raw: IO[bytes], left: int) -> None:
        self._raw = raw
        self._left = left

    def read(self, size: int) -> bytes:
        """Return `size` bytes, or those that are left."""
        return self._take(self._raw.read(max(0, min(size, self._left))))

    def readline(self) -> bytes:
        """Return a line, or the bytes that are left."""
        return self._take(self._raw.readline(self._left))

    def _take(self, data: bytes) -> bytes:
        self._left -= len(data)
        return data


def read_pickle(path: Path, records: Collection[str] = ()) -> Any:
    """Load the pickled value in a file. `records`: classes whose objects it may hold, which become stubs.

    Raises `PickleRefused`, whose message begins with the file's name.
    """
    try:
        with _open_stream(path) as stream:
            value = load(stream, records, str(path))
            if value == TORCH_MAGIC and isinstance(value, int):
                load(stream, records, str(path))  # the protocol's version
                load(stream, records, str(path))  # the machine that wrote it
                value = load(stream, records, str(path))
            return value
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError) as error:  # also of an encrypted archive
        raise PickleRefused(f"{path}: can't be read: {error}") from None


@contextmanager
def _open_stream(path: Path) -> Iterator[IO[bytes]]:
    with open_regular(path) as raw:
        start = raw.read(4)
        raw.seek(0)
        if start == _ZIP:
            with zipfile.ZipFile(raw) as archive, archive.open(_find_entry(archive, path)) as entry:
                yield cast(IO[bytes], _Bounded(entry, archive.getinfo(entry.name).file_size))
        elif start.startswith(_GZIP):
            with gzip.open(raw) as unpacked:
                yield cast(IO[bytes], _Bounded(cast(IO[bytes], unpacked), MAX_UNPACKED))
        else:
            yield cast(IO[bytes], _Bounded(raw, path.stat().st_size))


def _find_entry(archive: zipfile.ZipFile, path: Path) -> zipfile.ZipInfo:
    """Return the archive's pickle. Torch stores it uncompressed, so a compressed one may be a zip bomb."""
    entries = [entry for entry in archive.infolist() if entry.filename.endswith("/data.pkl")]
    if len(entries) != 1:
        raise PickleRefused(f"{path}: an archive with {len(entries)} data.pkl: torch's have one")
    if entries[0].compress_type != zipfile.ZIP_STORED:
        raise PickleRefused(f"{path}: its data.pkl is packed, which torch never does")
    return entries[0]
