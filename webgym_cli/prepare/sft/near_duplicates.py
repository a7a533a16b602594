"""Near-duplicate detection of screenshots by difference hash, per task."""

from __future__ import annotations

import io

from webgym_cli.errors import StoreError

# Comparisons per row, and number of rows; their product is the hash's length in bits.
WIDE, HIGH = 16, 16


def difference_hash(png: bytes) -> int:
    """Return a 256-bit difference hash: whether each pixel of a grey 17x16 thumbnail is darker than the next.

    Decodes the image once. Raises `StoreError` if that fails.
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
    """Screenshots of the sampled steps, by task."""

    def __init__(self, bits: int) -> None:
        """`bits`: maximum Hamming distance of the hashes of near duplicates."""
        self._bits = bits
        self._hashes: dict[str, list[int]] = {}

    def add(self, task: str, png: bytes) -> bool:
        """Add an image and return True, unless a near duplicate is known. Raises `StoreError`."""
        image_hash, known = difference_hash(png), self._hashes.setdefault(task, [])
        if any((image_hash ^ other).bit_count() <= self._bits for other in known):
            return False
        known.append(image_hash)
        return True
