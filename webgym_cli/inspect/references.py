"""Which images the truth names, and where: in 52 bytes a reference, so that a million of them fit in memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

_PACKED = struct.Struct("<32sIIIQ")
# As many as the store has folders: an image and its references are found in the shard of its first byte.
_SHARDS = 256


@dataclass(frozen=True, slots=True)
class Reference:
    """One step's image, as its line names it."""

    sha256: str
    width: int
    """Pixels, as the line has it."""
    height: int
    """Pixels."""
    source: int
    """Which file of the truth, in the order of reading."""
    start: int
    """First byte of the line."""


@dataclass(slots=True)
class References:
    """Collects references; gives them back a folder of the store at a time."""

    _shards: list[bytearray] = field(default_factory=lambda: [bytearray() for _ in range(_SHARDS)])

    def add(self, sha256: str, width: int = 0, height: int = 0, source: int = 0, start: int = 0) -> None:
        """Take a reference, or a name of which nothing else is known."""
        digest = bytes.fromhex(sha256)
        self._shards[digest[0]] += _PACKED.pack(digest, width, height, source, start)

    def of(self, folder: str) -> Iterator[Reference]:
        """Yield the references to the images of a folder (`3f`), in the order of taking."""
        for digest, *rest in _PACKED.iter_unpack(self._shards[int(folder, 16)]):
            yield Reference(digest.hex(), *rest)

    @staticmethod
    def folders() -> list[str]:
        """Return the names of all folders, in order."""
        return [f"{number:02x}" for number in range(_SHARDS)]
