"""Image references of trajectories in 52 bytes each, so that millions fit into memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

_PACKED = struct.Struct("<32sIIIQ")
# One shard per folder of the store: an image's shard is the first byte of its digest.
_SHARDS = 256


@dataclass(frozen=True, slots=True)
class Reference:
    """One reference to an image by a step."""

    sha256: str
    width: int
    """Width in pixels according to the line."""
    height: int
    """Height in pixels."""
    source: int
    """Number of the source file in the order of reading."""
    start: int
    """Byte offset of the line."""


@dataclass(slots=True)
class References:
    """Collects references and returns them by folder of the store."""

    _shards: list[bytearray] = field(default_factory=lambda: [bytearray() for _ in range(_SHARDS)])

    def add(self, sha256: str, width: int = 0, height: int = 0, source: int = 0, start: int = 0) -> None:
        """Add a reference, or an image name without further data."""
        digest = bytes.fromhex(sha256)
        self._shards[digest[0]] += _PACKED.pack(digest, width, height, source, start)

    def of(self, folder: str) -> Iterator[Reference]:
        """Yield the references to the images of a folder (`3f`) in the order of adding."""
        for digest, *rest in _PACKED.iter_unpack(self._shards[int(folder, 16)]):
            yield Reference(digest.hex(), *rest)

    @staticmethod
    def folders() -> list[str]:
        """Return the names of all folders, in order."""
        return [f"{number:02x}" for number in range(_SHARDS)]
