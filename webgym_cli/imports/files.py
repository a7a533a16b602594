"""Files of other systems: JSON (lines, one array, or one object), and images.

Images are converted to PNG, upright and opaque. A PNG that is so stays byte-identical.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import os
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice, product
from pathlib import Path, PurePosixPath
from typing import Any

from PIL import Image, UnidentifiedImageError

from webgym_cli.errors import StoreError
from webgym_cli.imports.source import NotUnderstood, SkipReason
from webgym_cli.store.screenshots import PNG_SIGNATURE, flatten_picture, is_flat
from webgym_cli.util.files import open_regular, read_json
from webgym_cli.util.text import first_line

# Endings of files of JSON Lines, or of one array.
_SUFFIXES = (".jsonl", ".ndjson", ".json")
# Maximum number of pixels of an image: a larger one is no screenshot.
MAX_PIXELS = 100_000_000
# Formats that are read: others run programs (EPS), or are no screenshots.
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
# Pixel modes that PNG supports; images in others (such as CMYK) become RGB.
PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
_BROKEN = (OSError, SyntaxError, ValueError, Image.DecompressionBombError, Image.DecompressionBombWarning)


def read_json_lines(source: Path) -> Iterator[tuple[str, Any]]:
    """Yield the place and value of each line that is not blank; None for one that is no JSON, as a cut last line.

    A file that is one array has its values in place of lines, and one value over several lines is one line.
    """
    with open_regular(source) as opened:
        encoding = json.detect_encoding(opened.read(4))
        opened.seek(0)
        # The bytes of other encodings can't be told apart into lines.
        is_utf8 = encoding.startswith("utf-8")
        file = opened if is_utf8 else io.BytesIO(opened.read().decode(encoding, "replace").encode())
        start, after = islice(chain(filter(bytes.strip, file), (b"", b"")), 2)
        # Reading all at once takes memory, which a damaged first line before an object of its own is no reason for.
        may_be_whole = parse_json(start) is None and not after.startswith(b"{")
        file.seek(0)
        if start.removeprefix(BOM_UTF8).lstrip().startswith(b"[") or may_be_whole:
            if (whole := parse_json(file.read())) is not None:
                values = whole if isinstance(whole, list) else [whole]
                yield from ((f"{source}, item {number}", value) for number, value in enumerate(values, 1))
                return
            file.seek(0)
        for number, raw in enumerate(file, 1):
            if raw.strip():
                yield f"{source}, line {number}", parse_json(raw)


def parse_json(raw: bytes | str) -> Any:
    """Return the value of a JSON text; None for another text."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def list_files(path: Path, *suffixes: str) -> list[Path]:
    """Return a file with one of the suffixes itself, else the files under a folder with the first of them."""
    if path.is_file() and path.suffix.lower() in suffixes:
        return [path]
    return sorted(path.rglob(f"*{suffixes[0]}"))


def find_lines(path: Path, is_own: Callable[[Any], bool]) -> list[Path]:
    """Return the files of JSON Lines at or under a path whose first value has the form of a format.

    Files without a value beside them, or named by the path, are among them: their reader says what is damaged.
    """
    first = {file: _read_first(file) for file in list_files(path, *_SUFFIXES) if file.is_file()}
    own = {file for file, value in first.items() if is_own(value)}
    return [file for file, value in first.items() if file in own or (value is None and (own or file == path))]


def _read_first(file: Path) -> Any:
    try:
        return next((value for _, value in read_json_lines(file) if value is not None), None)
    except OSError:
        return None


def read_object(file: Path) -> Any:
    """Read a JSON file. Raises `NotUnderstood`."""
    try:
        return read_json(file)
    except StoreError as error:
        raise NotUnderstood(str(error)) from None


class UnreadableImage(NotUnderstood):
    """An image is missing or invalid."""

    why = SkipReason.SCREENSHOT_MISSING


def load_png(picture: Path | bytes) -> bytes:
    """Load an image, a file or its content, as PNG. Raises `UnreadableImage` with its path."""
    if isinstance(picture, bytes):
        return convert_png(picture, "an image within the file")
    with _name_errors(picture), open_regular(picture) as file:
        return _to_png(file.read())


def decode_data_url(url: str) -> bytes:
    """Return the content of an image's data URL, as browsers read it. Raises `UnreadableImage`."""
    head, comma, data = url.partition(",")
    if not comma or not re.fullmatch(r"data:image/.*;\s*base64", head, re.IGNORECASE):
        raise UnreadableImage("image_url: only data:image/...;base64 URLs are taken")
    try:
        plain = "".join(data.split()).rstrip("=")  # encoders may fold lines, and leave the padding out
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UnreadableImage(f"image_url: {error}") from None


def find_picture(name: str, roots: Sequence[Path]) -> Path:
    """Return the path of an image: the end of its path on another machine, below one of the folders."""
    parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part != "/"]
    # The path is untrusted: it must not leave the folder.
    if ".." in parts[-3:] or not parts:
        raise NotUnderstood(f"the image path {name!r} leaves its folder")
    tails = [Path(*parts[start:]) for start in range(len(parts)) if ".." not in parts[start:]]
    candidates = (root / tail for root, tail in product(roots, tails))
    named = parts[1:] if parts[0] == roots[0].name else parts  # by the episode's own folder
    return next(filter(is_file, candidates), roots[0].joinpath(*named[-3:]))


def is_file(path: Path) -> bool:
    """Whether a file is there; also for a name that no file can have, such as an image in base64."""
    return os.path.isfile(path)  # noqa: PTH113  `Path.is_file` raises if the name is too long


def convert_png(data: bytes, name: str, pixels: range | None = None) -> bytes:
    """Return an image as PNG. `pixels`: allowed numbers of them. Raises `UnreadableImage` with its name."""
    with _name_errors(name):
        return _to_png(data, pixels)


def _to_png(data: bytes, pixels: range | None = None) -> bytes:
    pixels = pixels or range(1, MAX_PIXELS + 1)
    with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
        # Checked by the header, before anything is decoded.
        if image.width * image.height not in pixels:
            size = f"{image.width}x{image.height} pixels"
            raise ValueError(f"{size} are not from {pixels.start} to {pixels.stop - 1} in all")
        image.verify()  # checksums; the image has to be opened again after it
    with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
        image.load()  # right checksums may be of pixels that can't be decoded
        is_same = is_flat(image)
        # Unchanged, because the digest of the bytes is the image's name in the store.
        if is_same and data.startswith(PNG_SIGNATURE):
            return data
        flat = image if is_same else flatten_picture(image)
        out = io.BytesIO()
        (flat if flat.mode in PNG_MODES else flat.convert("RGB")).save(out, "PNG")
        return out.getvalue()


def load_size(picture: Path) -> tuple[int, int]:
    """Return width and height in pixels. Raises `UnreadableImage`."""
    with _name_errors(picture), open_regular(picture) as file, Image.open(file) as image:
        return image.size


@contextmanager
def _name_errors(name: object) -> Iterator[None]:
    """Raise the errors of an image within the block as `UnreadableImage` with its name."""
    try:
        yield
    except _BROKEN as error:
        raise UnreadableImage(f"{name}: {_describe_error(error)}") from None


def _describe_error(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return "not there"
    if isinstance(error, UnidentifiedImageError):  # whose text has the address of a buffer
        return "no image of a known format"
    return error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
