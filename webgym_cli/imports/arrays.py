"""Numpy's arrays and numbers in a pickle: their raw bytes, read here. Numpy itself is not needed and is not called."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from webgym_cli.imports.pickle_stubs import PickleRefused

# Numpy's name of a number -> `struct`'s. Objects, texts and records are not admitted.
_NAMES = ("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")
CODES = dict(zip(_NAMES, "?bBhHiIqQefd", strict=True))
# Byte orders; pickles of another machine's native order are not told apart from ours, which is little-endian.
ORDERS = {"<": "<", ">": ">", "|": "<", "=": "<"}
MAX_DIMENSIONS = 8
MAX_AXIS = 1 << 40
# Numbers of an array that are made into Python's at most; a picture is never.
MAX_LISTED = 10_000


@dataclass(slots=True)
class Dtype:
    """The kind of an array's numbers."""

    code: str
    """One of `CODES`."""
    order: str = "<"
    """Byte order."""

    def build(self, state: Any) -> None:
        """Take numpy's state: version, byte order, and what only records have."""
        # state[2:5]: sub-array, names and fields, which only record types have.
        order = state[1] if isinstance(state, tuple) and len(state) > 1 and not any(state[2:5]) else None
        if not isinstance(order, str) or order not in ORDERS:
            raise PickleRefused("an array of an unknown kind of numbers")
        self.order = ORDERS[order]

    @property
    def size(self) -> int:
        """Bytes of one number."""
        return struct.calcsize(f"<{CODES[self.code]}")


@dataclass(slots=True)
class Array:
    """An array: its shape, and its numbers as bytes, the last axis fastest."""

    shape: tuple[int, ...] = ()
    dtype: Dtype | None = None
    data: bytes = b""

    def build(self, state: Any) -> None:
        """Take numpy's state: version, shape, kind, whether the first axis is fastest, bytes."""
        if not isinstance(state, tuple) or len(state) != 5:
            raise PickleRefused("an array of an unknown form")
        _, shape, dtype, fortran, data = state
        # One axis has the same order in both.
        if fortran and isinstance(shape, tuple) and len(shape) > 1:
            raise PickleRefused("an array in Fortran's order")
        self.shape, self.dtype, self.data = _check_parts(data, dtype, shape)

    def numbers(self) -> list[Any]:
        """Return the numbers of a small array, flat. Raises `PickleRefused` for a large one."""
        count = math.prod(self.shape)
        if self.dtype is None or count > MAX_LISTED:
            raise PickleRefused(f"an array of {count} numbers where a few are expected")
        return list(struct.unpack(f"{self.dtype.order}{count}{CODES[self.dtype.code]}", self.data))

    @property
    def is_picture(self) -> bool:
        """Whether this is rows of pixels in RGB or RGBA, a byte each channel."""
        colour = len(self.shape) == 3 and self.shape[2] in (3, 4) and min(self.shape) > 0
        return colour and self.dtype is not None and self.dtype.code == "u1"


def _check_parts(data: Any, dtype: Any, shape: Any) -> tuple[tuple[int, ...], Dtype, bytes]:
    """Return the parts of an array whose length fits its shape. Raises `PickleRefused`."""
    whole = isinstance(shape, tuple) and len(shape) <= MAX_DIMENSIONS
    if not whole or not all(type(axis) is int and 0 <= axis < MAX_AXIS for axis in shape):
        raise PickleRefused("an array whose shape is no tuple of numbers")
    if not isinstance(dtype, Dtype) or not isinstance(data, bytes | bytearray):
        raise PickleRefused("an array that is not made of plain numbers")
    # A forged shape would make the reader of the picture read past the bytes, or allocate for them.
    if math.prod(shape) * dtype.size != len(data):
        raise PickleRefused(f"an array of {len(data)} bytes that should have the shape {shape}")
    return shape, dtype, bytes(data)


def _make_dtype(code: Any, *_: Any) -> Dtype:
    if not isinstance(code, str) or code not in CODES:
        raise PickleRefused("an array that is not made of plain numbers")
    return Dtype(code)


def _make_array(*_: Any) -> Array:
    return Array()


def _make_from_buffer(data: Any, dtype: Any, shape: Any, order: Any = "C") -> Array:
    if order != "C":
        raise PickleRefused("an array in Fortran's order")
    return Array(*_check_parts(data, dtype, shape))


def _make_scalar(dtype: Any, data: Any) -> Any:
    shape, kind, raw = _check_parts(data, dtype, ())
    return Array(shape, kind, raw).numbers()[0]


# Names of numpy's -> what does their work here.
NUMPY: dict[str, Callable[..., Any]] = {
    "numpy.dtype": _make_dtype,
    "numpy.ndarray": _make_array,
    **{f"numpy.{core}.multiarray._reconstruct": _make_array for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray.scalar": _make_scalar for core in ("core", "_core")},
    **{f"numpy.{core}.numeric._frombuffer": _make_from_buffer for core in ("core", "_core")},
}
