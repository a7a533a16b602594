"""Pictures as other systems left them, as PNG. A PNG stays as it is, byte for byte; others keep each pixel's value."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from PIL import Image

from webgym_cli.imports.arrays import Array
from webgym_cli.imports.source import NotUnderstood, SkipReason
from webgym_cli.store.screenshots import PNG_SIGNATURE
from webgym_cli.util.files import open_regular

# Pixels of one picture at most: a larger one is no screenshot.
MAX_PIXELS = 100_000_000
# Kinds of pixels that PNG holds; any other (a printer's CMYK) becomes RGB.
PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
_BROKEN = (OSError, SyntaxError, ValueError, Image.DecompressionBombError, Image.DecompressionBombWarning)


class NoPicture(NotUnderstood):
    """A picture is not there, or is none."""

    why = SkipReason.SCREENSHOT_MISSING


def load_png(picture: Path | Array) -> bytes:
    """Return a picture as PNG. Raises `NoPicture` that names it."""
    if isinstance(picture, Array):
        return _encode(_from_array(picture))
    with _open_file(picture) as file:
        data = file.read()
        with Image.open(io.BytesIO(data)) as image:
            # Before anything is decoded: the header is enough.
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(f"{image.width}x{image.height} pixels are no screenshot")
            # Byte for byte: the digest of the picture is its name in the store.
            if data.startswith(PNG_SIGNATURE):
                image.verify()
                return data
            return _encode(image if image.mode in PNG_MODES else image.convert("RGB"))


def load_size(picture: Path | Array) -> tuple[int, int]:
    """Return width and height in pixels. Raises `NoPicture`."""
    if isinstance(picture, Array):
        return _from_array(picture).size
    with _open_file(picture) as file, Image.open(file) as image:
        return image.size


@contextmanager
def _open_file(picture: Path) -> Iterator[IO[bytes]]:
    """Yield a picture's file. What the block finds broken raises `NoPicture` that names it."""
    try:
        with open_regular(picture) as file:
            yield file
    except _BROKEN as error:
        raise NoPicture(f"{picture}: {_describe_error(error)}") from None


def _from_array(array: Array) -> Image.Image:
    if not array.is_picture or math.prod(array.shape) > 4 * MAX_PIXELS:
        raise NoPicture(f"an array of shape {array.shape} is no picture")
    height, width, channels = array.shape
    return Image.frombytes("RGBA" if channels == 4 else "RGB", (width, height), array.data)


def _encode(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _describe_error(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return "not there"
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)).splitlines()[0]
