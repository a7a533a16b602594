"""Pictures as a person sees them, which all servers and trainers read alike: in RGB, without transparency."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING

from webgym_cli.store.screenshots import PNG_SIGNATURE

if TYPE_CHECKING:
    from PIL.Image import Image

# Tag of the way in which a camera was held.
_ORIENTATION = 0x0112
# Place of a PNG's colour type, and the types with transparency; others tell of it before the pixels.
_COLOUR_TYPE, _TRANSPARENT = 25, (b"\x04", b"\x06")


def flatten_picture(opened: Image) -> Image:
    """Return a picture in RGB: upright, on white where it is transparent. One that is so is returned itself.

    Raises `OSError`, `SyntaxError` or `ValueError` for a damaged file.
    """
    from PIL import Image as Images
    from PIL import ImageOps as Operations

    try:
        upright: Image = Operations.exif_transpose(opened) if _ORIENTATION in opened.getexif() else opened
    except (struct.error, SyntaxError, ValueError, KeyError):  # what a camera wrote is cut off: the pixels are there
        upright = opened
    if upright.mode == "I;16":  # `convert` would take all above 255 for white
        upright = upright.point(lambda value: value / 256).convert("L")
    if upright.has_transparency_data:
        ground = Images.new("RGBA", upright.size, "white")
        ground.alpha_composite(upright.convert("RGBA"))
        upright = ground
    if upright.mode != "RGB":
        return upright.convert("RGB")
    upright.load()
    return upright


def flatten_png(png: bytes) -> bytes:
    """Return a PNG without transparency, which vLLM reads as white and transformers as black. Raises `ValueError`."""
    if not png.startswith(PNG_SIGNATURE):
        raise ValueError("its image is no PNG")
    if png[_COLOUR_TYPE : _COLOUR_TYPE + 1] not in _TRANSPARENT and b"tRNS" not in png[: png.find(b"IDAT")]:
        return png
    from PIL import Image as Images

    buffer = io.BytesIO()
    try:
        with Images.open(io.BytesIO(png)) as opened:
            flatten_picture(opened).save(buffer, format="PNG")
    except (OSError, SyntaxError, Images.DecompressionBombError) as error:
        raise ValueError(f"its image is no PNG: {error}") from None
    return buffer.getvalue()
