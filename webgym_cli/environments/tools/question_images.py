"""Images of questions, from files or data URLs, as PNG within the size limits of serving and training."""

from __future__ import annotations

import base64
import binascii
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from webgym_cli.config.policy_config import ImageSettings
from webgym_cli.store.pictures import flatten_picture
from webgym_cli.store.screenshots import PNG_SIGNATURE
from webgym_cli.tasks.registry import BadTaskError
from webgym_cli.util.files import open_regular
from webgym_cli.util.json_values import as_list

_DATA = "data:image/"
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
    from PIL import Image

    try:
        data = _read_bytes(place)
        with Image.open(io.BytesIO(data)) as opened:
            image = flatten_picture(opened)
            wanted = min(max(image.width * image.height, limits.image_min_pixels), limits.image_max_pixels)
            ratio = math.sqrt(wanted / (image.width * image.height))
            if ratio == 1 and data.startswith(PNG_SIGNATURE) and image is opened:
                return data
            rounded = math.floor if ratio < 1 else math.ceil
            size = (max(1, rounded(image.width * ratio)), max(1, rounded(image.height * ratio)))
            buffer = io.BytesIO()
            image.resize(size).save(buffer, format="PNG")
            return buffer.getvalue()
    except (OSError, SyntaxError, ValueError, binascii.Error, Image.DecompressionBombError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition(": ")[0]
        raise ValueError(f"{place[:200]}: no picture: {reason}") from None


def _read_bytes(place: str) -> bytes:
    if place.startswith(_DATA):
        return base64.b64decode(place.partition(",")[2], validate=True)
    with open_regular(Path(place)) as file:
        return file.read()
