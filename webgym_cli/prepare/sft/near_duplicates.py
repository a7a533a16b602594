"""Tells screenshots that look alike: a difference hash, and what was seen of each task."""

from __future__ import annotations

import io

from webgym_cli.errors import StoreError

# Comparisons along a row, and rows: their product is the hash's length in bits.
WIDE, HIGH = 16, 16


def difference_hash(png: bytes) -> int:
    """Return 256 bits of a picture: in a grey thumbnail of 17x16, whether a pixel is darker than its right neighbour.

    Costs one decoding of the picture. Raises `StoreError` when it can't be decoded.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(png)) as picture:
            small = picture.convert("L").resize((WIDE + 1, HIGH), Image.Resampling.BILINEAR).tobytes()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise StoreError(f"a screenshot can't be decoded: {error}") from error
    bits = 0
    for row in range(HIGH):
        start = row * (WIDE + 1)
        for left, right in zip(small[start : start + WIDE], small[start + 1 : start + 1 + WIDE], strict=True):
            bits = bits << 1 | (left < right)
    return bits


class NearDuplicateIndex:
    """The screenshots of the steps that were taken, by task."""

    def __init__(self, bits: int) -> None:
        """`bits`: pictures whose hashes differ in at most this many are near duplicates."""
        self._bits = bits
        self._hashes: dict[str, list[int]] = {}

    def add(self, task: str, png: bytes) -> bool:
        """Note a picture of a task and return True, unless one like it was noted. Raises `StoreError`."""
        image_hash, known = difference_hash(png), self._hashes.setdefault(task, [])
        if any((image_hash ^ other).bit_count() <= self._bits for other in known):
            return False
        known.append(image_hash)
        return True
