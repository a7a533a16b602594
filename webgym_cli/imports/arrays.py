"""Numpy arrays and scalars in a pickle, decoded from their raw bytes without numpy."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from webgym_cli.imports.pickle_stubs import PickleRefused

# Numpy's type codes -> those of `struct`. Objects, strings and record types are not allowed.
_NAMES = ("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")
CODES = dict(zip(_NAMES, "?bBhHiIqQefd", strict=True))
# Byte orders. Native order is read as little-endian: a pickle does not record the machine's.
ORDERS = {"<": "<", ">": ">", "|": "<", "=": "<"}
MAX_DIMENSIONS = 8
MAX_AXIS = 1 << 40
# Maximum size of an array that is converted to Python numbers; images never are.
MAX_LISTED = 10_000


@dataclass(slots=True)
class Dtype:
    """Data type of an array."""

    code: str
    """One of `CODES`."""
    order: str = "<"
    """Byte order."""

    def build(self, state: Any) -> None:
        """Set the byte order from numpy's pickled state. Raises `PickleRefused` for record types."""
        # state[2:5]: sub-array, names and fields, which only record types have.
        order = state[1] if isinstance(state, tuple) and len(state) > 1 and not any(state[2:5]) else None
        if not isinstance(order, str) or order not in ORDERS:
            raise PickleRefused("an array of an unknown kind of numbers")
        self.order = ORDERS[order]

    @property
    def size(self) -> int:
        """Size of one number in bytes."""
        return struct.calcsize(f"<{CODES[self.code]}")


@dataclass(slots=True)
class Array:
    """An array: shape, data type, and raw bytes in C order."""

    shape: tuple[int, ...] = ()
    dtype: Dtype | None = None
    data: bytes = b""

    def build(self, state: Any) -> None:
        """Set the contents from numpy's pickled state: version, shape, dtype, whether in Fortran order, bytes.

        Raises `PickleRefused`.
        """
        if not isinstance(state, tuple) or len(state) != 5:
            raise PickleRefused("an array of an unknown form")
        _, shape, dtype, fortran, data = state
        # One axis has the same order in both.
        if fortran and isinstance(shape, tuple) and len(shape) > 1:
            raise PickleRefused("an array in Fortran's order")
        self.shape, self.dtype, self.data = _check_parts(data, dtype, shape)

    def numbers(self) -> list[Any]:
        """Return the numbers of a small array as a flat list. Raises `PickleRefused` for a large array."""
        count = math.prod(self.shape)
        if self.dtype is None or count > MAX_LISTED:
            raise PickleRefused(f"an array of {count} numbers where a few are expected")
        return list(struct.unpack(f"{self.dtype.order}{count}{CODES[self.dtype.code]}", self.data))

    @property
    def is_picture(self) -> bool:
        """Whether this is an RGB or RGBA image: shape (height, width, channels), one byte per channel."""
        colour = len(self.shape) == 3 and self.shape[2] in (3, 4) and min(self.shape) > 0
        return colour and self.dtype is not None and self.dtype.code == "u1"


def _check_parts(data: Any, dtype: Any, shape: Any) -> tuple[tuple[int, ...], Dtype, bytes]:
    """Return shape, dtype and bytes of an array after validation. Raises `PickleRefused`."""
    whole = isinstance(shape, tuple) and len(shape) <= MAX_DIMENSIONS
    if not whole or not all(type(axis) is int and 0 <= axis < MAX_AXIS for axis in shape):
        raise PickleRefused("an array whose shape is no tuple of numbers")
    if not isinstance(dtype, Dtype) or not isinstance(data, bytes | bytearray):
        raise PickleRefused("an array that is not made of plain numbers")
    # With a forged shape, the image decoder would read past the bytes or allocate memory for them.
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


# Substitutes of numpy's names.
NUMPY: dict[str, Callable[..., Any]] = {
    "numpy.dtype": _make_dtype,
    "numpy.ndarray": _make_array,
    **{f"numpy.{core}.multiarray._reconstruct": _make_array for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray.scalar": _make_scalar for core in ("core", "_core")},
    **{f"numpy.{core}.numeric._frombuffer": _make_from_buffer for core in ("core", "_core")},
}
