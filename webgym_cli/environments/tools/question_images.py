"""Images of questions, from files or data URLs, as PNG within the size limits of serving and training."""

from __future__ import annotations

import base64
import binascii
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webgym_cli.config.policy_config import ImageSettings
from webgym_cli.store.screenshots import PNG_SIGNATURE
from webgym_cli.tasks.registry import BadTaskError
from webgym_cli.util.files import open_regular
from webgym_cli.util.json_values import as_list

if TYPE_CHECKING:
    from PIL.Image import Image

_DATA = "data:image/"
# Tag of the way in which a camera was held.
_ORIENTATION = 0x0112
_PLACE = "a path, a data URL, or an object with path or bytes (base64), is needed"


def list_images(given: Any) -> list[str]:
    """Return the images of a record's field (one or several) as paths and data URLs.

    Raises `BadTaskError`.
    """
    return [_read_place(item) for item in as_list(given)]


def _read_place(item: Any) -> str:
    if isinstance(item, Mapping) and isinstance(item.get("bytes"), str):
        return f"{_DATA}png;base64,{item['bytes']}"
    if isinstance(item, Mapping):
        item = item.get("url") or item.get("path")
    if not isinstance(item, str) or not item or "\0" in item:
        raise BadTaskError(f"images: {_PLACE}")
    return item


def load_image(place: str, limits: ImageSettings) -> bytes:
    """Return an image as PNG, scaled to the pixel limits. Raises `ValueError` with its name."""
    from PIL import Image as Images

    try:
        data = _read_bytes(place)
        with Images.open(io.BytesIO(data)) as opened:
            image = _flatten(opened)
            wanted = min(max(image.width * image.height, limits.image_min_pixels), limits.image_max_pixels)
            ratio = math.sqrt(wanted / (image.width * image.height))
            if ratio == 1 and data.startswith(PNG_SIGNATURE) and image is opened:
                return data
            rounded = math.floor if ratio < 1 else math.ceil
            size = (max(1, rounded(image.width * ratio)), max(1, rounded(image.height * ratio)))
            buffer = io.BytesIO()
            image.resize(size).save(buffer, format="PNG")
            return buffer.getvalue()
    except (OSError, SyntaxError, ValueError, binascii.Error, Images.DecompressionBombError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition(": ")[0]
        raise ValueError(f"{place[:200]}: no picture: {reason}") from None


def _flatten(opened: Image) -> Image:
    """Return a picture as a person sees it, in RGB: upright, on white where it is transparent; itself if it is so."""
    from PIL import Image as Images
    from PIL import ImageOps as Operations

    upright: Image = Operations.exif_transpose(opened) if _ORIENTATION in opened.getexif() else opened
    if upright.mode == "I;16":  # `convert` would take all above 255 for white
        upright = upright.point(lambda value: value / 256).convert("L")
    if upright.has_transparency_data:
        ground = Images.new("RGBA", upright.size, "white")
        ground.alpha_composite(upright.convert("RGBA"))
        upright = ground
    if upright.mode != "RGB":
        return upright.convert("RGB")
    upright.load()  # raises for a damaged file
    return upright


def _read_bytes(place: str) -> bytes:
    if place.startswith(_DATA):
        return base64.b64decode(place.partition(",")[2], validate=True)
    with open_regular(Path(place)) as file:
        return file.read()
