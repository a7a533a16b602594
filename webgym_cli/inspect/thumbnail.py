"""Small images of screenshots."""

from __future__ import annotations

import io

from PIL import Image

from webgym_cli.errors import StoreError
from webgym_cli.store.screenshots import DAMAGE_HINT

# Maximum pixels of a thumbnail's longer side.
LARGEST = 320
# WebP quality, 0 to 100.
QUALITY = 60


def make_thumbnail(content: bytes) -> bytes:
    """Return an image as WebP of at most `LARGEST` pixels a side. Raises `StoreError` if the bytes are no image."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            picture = image.convert("RGB")
        picture.thumbnail((LARGEST, LARGEST))
        packed = io.BytesIO()
        picture.save(packed, "WEBP", quality=QUALITY)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # Pillow's for a bad image
        reason = str(error).partition("<")[0].strip()
        raise StoreError(f"the screenshot is no image: {reason}", hint=DAMAGE_HINT) from error
    return packed.getvalue()
