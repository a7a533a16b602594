"""Pictures as a person sees them, which all servers and trainers read alike: in RGB, without transparency."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING

from webgym_cli.store.screenshots import PNG_SIGNATURE

if TYPE_CHECKING:
    from PIL.Image import Image

# Tag of the way in which a camera was held, and what a damaged tag raises.
_ORIENTATION = 0x0112
_DAMAGED = (struct.error, SyntaxError, ValueError, KeyError)
# Place of a PNG's colour type, and the types with transparency; others tell of it before the pixels.
_COLOUR_TYPE, _TRANSPARENT = 25, (b"\x04", b"\x06")


def is_flat(opened: Image) -> bool:
    """Whether all read a picture alike: it is upright, and each pixel is opaque. Raises as `flatten_picture`."""
    if not _is_upright(opened):
        return False
    return not opened.has_transparency_data or opened.convert("RGBA").getchannel("A").getextrema()[0] == 255


def flatten_picture(opened: Image) -> Image:
    """Return a picture in RGB: upright, on white where it is transparent. One that is so is returned itself.

    Raises `OSError`, `SyntaxError` or `ValueError` for a damaged file.
    """
    from PIL import Image as Images
    from PIL import ImageOps as Operations

    try:
        upright: Image = opened if _is_upright(opened) else Operations.exif_transpose(opened)
    except _DAMAGED:  # what a camera wrote is cut off: the pixels are there
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
    """Return a PNG upright and opaque: vLLM turns it and reads transparent as white, transformers neither.

    One that is so stays byte-identical. Raises `ValueError` for what is no PNG.
    """
    if not png.startswith(PNG_SIGNATURE):
        raise ValueError("its image is no PNG")
    is_opaque = png[_COLOUR_TYPE : _COLOUR_TYPE + 1] not in _TRANSPARENT and b"tRNS" not in png[: png.find(b"IDAT")]
    if is_opaque and b"eXIf" not in png:
        return png
    from PIL import Image as Images

    buffer = io.BytesIO()
    try:
        with Images.open(io.BytesIO(png)) as opened:
            if is_flat(opened):
                return png
            flatten_picture(opened).save(buffer, format="PNG")
    except (OSError, SyntaxError, Images.DecompressionBombError) as error:
        raise ValueError(f"its image is no PNG: {error}") from None
    return buffer.getvalue()


def _is_upright(opened: Image) -> bool:
    """Whether no reader turns a picture; False too where what a camera wrote is damaged, for which some refuse it."""
    try:
        return opened.getexif().get(_ORIENTATION) not in range(2, 9)
    except _DAMAGED:
        return False
