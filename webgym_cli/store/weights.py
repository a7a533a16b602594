"""Weight files: names, dtypes and shapes of the tensors from the headers, and checks of the values, without torch."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

# Name, dtype (`BF16`, `F32`, ...) and shape.
Tensor = tuple[str, str, tuple[int, ...]]
# Bits of a value of each float format, and of its exponent: with all of these set it is infinite or not a number.
_FLOATS = {
    "F64": ("<u8", 0x7FF << 52),
    "F32": ("<u4", 0xFF << 23),
    "BF16": ("<u2", 0xFF << 7),
    "F16": ("<u2", 0x1F << 10),
}
_OTHER = ("u1", 0)
# Number of values that are checked at once.
_CHUNK = 2**22


def read_header(file: Path) -> dict[str, dict[str, Any]]:
    """Return the tensors of a safetensors file by name: `dtype`, `shape` and `data_offsets`.

    Raises `ValueError` for a truncated or invalid file, and `OSError`.
    """
    with file.open("rb") as stream:
        start = stream.read(8)
        if len(start) < 8:
            raise ValueError(f"{file}: too short for a safetensors file")
        (length,) = struct.unpack("<Q", start)
        if length > file.stat().st_size:
            raise ValueError(f"{file}: shorter than its header says")
        header = json.loads(stream.read(length))
    if not isinstance(header, dict):
        raise ValueError(f"{file}: its header is no object")
    return {name: tensor for name, tensor in header.items() if name != "__metadata__"}


def is_complete_file(file: Path) -> bool:
    """Whether a safetensors file has the length that its header implies."""
    try:
        ends = [int(tensor["data_offsets"][1]) for tensor in read_header(file).values()]
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
        return file.stat().st_size == 8 + int(length) + max(ends, default=0)
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return False


def list_tensors(folder: Path) -> Iterator[Tensor]:
    """Yield each tensor in a model folder. Raises as `read_header`."""
    for file in sorted(folder.glob("*.safetensors")):
        for name, tensor in read_header(file).items():
            yield name, str(tensor["dtype"]), tuple(int(size) for size in tensor["shape"])


def find_non_finite(folder: Path) -> str:
    """Return the name of a tensor of a model or adapter folder with an infinite value or NaN; empty if all are finite.

    Reads all weights: use a thread. Raises as `read_header`.
    """
    for file in sorted(folder.glob("*.safetensors")):
        for name, (dtype, values) in _map_tensors(file).items():
            _, exponent = _FLOATS.get(dtype, _OTHER)
            chunks = (values[start : start + _CHUNK] for start in range(0, len(values), _CHUNK))
            if exponent and any(((chunk & exponent) == exponent).any() for chunk in chunks):
                return name
    return ""


def is_zero_adapter(folder: Path) -> bool:
    """Whether all B matrices of a LoRA adapter are zero, so that it changes nothing. Raises as `read_header`."""
    tensors = [_map_tensors(file) for file in sorted(folder.glob("*.safetensors"))]
    matrices = [values for file in tensors for name, (_, values) in file.items() if "lora_B" in name]
    return bool(matrices) and not any(values.any() for values in matrices)


def have_same_weights(folder: Path, other: Path) -> bool:
    """Whether two model folders hold tensors of the same names, formats and values. Raises as `read_header`."""
    one, two = (
        {name: tensor for file in sorted(path.glob("*.safetensors")) for name, tensor in _map_tensors(file).items()}
        for path in (folder, other)
    )
    return bool(one) and one.keys() == two.keys() and all(_are_equal(one[name], two[name]) for name in one)


def _are_equal(one: tuple[str, np.ndarray[Any, Any]], two: tuple[str, np.ndarray[Any, Any]]) -> bool:
    return one[0] == two[0] and len(one[1]) == len(two[1]) and bool((one[1] == two[1]).all())


def _map_tensors(file: Path) -> dict[str, tuple[str, np.ndarray[Any, Any]]]:
    """Return dtype and bits of each tensor of a safetensors file by name; values of other formats as bytes."""
    import numpy as np  # slow to import

    header = read_header(file)
    size = file.stat().st_size
    start = size - max((int(tensor["data_offsets"][1]) for tensor in header.values()), default=0)
    data = np.memmap(file, dtype=np.uint8, mode="r") if size else np.empty(0, np.uint8)
    mapped = {}
    for name, tensor in header.items():
        first, last = (start + int(offset) for offset in tensor["data_offsets"])
        dtype = str(tensor["dtype"])
        mapped[name] = dtype, data[first:last].view(_FLOATS.get(dtype, _OTHER)[0])
    return mapped
