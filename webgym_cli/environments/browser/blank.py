"""Blank pictures: what a browser shows before it has drawn."""

from __future__ import annotations

import io

# A PNG of one colour is far smaller than this; a larger one need not be decoded.
_BYTES_A_MEGAPIXEL = 16 * 1024
# Difference of colour, of 255, that still counts as the same.
_ALMOST = 3


def is_blank(png: bytes) -> bool:
    """Tell whether a PNG has one colour only."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as image:
        if len(png) > _BYTES_A_MEGAPIXEL * max(1.0, image.width * image.height / 1e6):
            return False
        bands = image.convert("RGB").getextrema()
    return all(isinstance(band, tuple) and band[1] - band[0] <= _ALMOST for band in bands)
