"""Headers of weight files: names, dtypes and shapes of the tensors, without loading them."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any


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


def list_tensors(folder: Path) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Yield name, dtype (`BF16`, `F32`, ...) and shape of each tensor in a model folder. Raises as `read_header`."""
    for file in sorted(folder.glob("*.safetensors")):
        for name, tensor in read_header(file).items():
            yield name, str(tensor["dtype"]), tuple(int(size) for size in tensor["shape"])
