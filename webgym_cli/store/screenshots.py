"""Image store: content-addressed files, each written once and before the line that references it.

In older runs a PNG may be replaced by a WebP with the same pixels. Its name remains the PNG's digest; the folder's
ledger, `3f/recoded.jsonl`, has the digest of the WebP. `flatten_picture` gives a picture as a person sees it, which all
servers and trainers read alike: in RGB, without transparency.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, ValidationError

from webgym_cli.errors import StoreError
from webgym_cli.records.base import Record
from webgym_cli.records.trajectory import Screenshot
from webgym_cli.util.files import append_lines, open_regular, write_atomic
from webgym_cli.util.optional import map_known

if TYPE_CHECKING:
    from PIL.Image import Image

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# File name of a folder's ledger.
LEDGER = "recoded.jsonl"
DAMAGE_HINT = "webgym inspect-buffer RUN --verify lists what is damaged"
_DIGITS = frozenset("0123456789abcdef")
# Tag of the way in which a camera was held, and what a damaged tag raises.
_ORIENTATION = 0x0112
_DAMAGED = (struct.error, SyntaxError, ValueError, KeyError)
# Place of a PNG's colour type, and the types with transparency; others tell of it before the pixels.
_COLOUR_TYPE, _TRANSPARENT = 25, (b"\x04", b"\x06")


class Recoded(Record):
    """Result of re-encoding a PNG: one line of a ledger. The newest line of an image counts."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Digest of the PNG, which remains the image's name."""
    recoded_sha256: str | None = Field(pattern=r"^[0-9a-f]{64}$")
    """Digest of the WebP; None: the PNG is kept, because a WebP would be larger or can't represent it."""
    bytes_before: int
    """Size of the PNG."""
    bytes_after: int
    """Size of the stored file."""


class MissingImageError(StoreError):
    """An image is not in the store, or not as it was stored."""


class ScreenshotStore:
    """Image files under `<root>/3f/3f9a….png` (or `.webp`), named by the SHA-256 of the PNG's bytes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        """The folder of the store."""

    def png(self, sha256: str) -> Path:
        """Return the path of an image's PNG, whether or not it exists."""
        return self.root / sha256[:2] / f"{sha256}.png"

    def webp(self, sha256: str) -> Path:
        """Return the path of an image's WebP, whether or not it exists."""
        return self.root / sha256[:2] / f"{sha256}.webp"

    def path(self, sha256: str) -> Path:
        """Return the path of an image's file; that of its PNG if there is none."""
        return Path(self.locate(sha256))

    def locate(self, sha256: str) -> str:
        """Return `path` as text, which is faster for datasets with thousands of images."""
        stem = f"{self.root}/{sha256[:2]}/{sha256}"
        webp = not os.path.exists(f"{stem}.png") and os.path.exists(f"{stem}.webp")  # noqa: PTH110
        return f"{stem}.webp" if webp else f"{stem}.png"

    def locate_beside(self, sha256: str) -> str:
        """Return the path relative to a folder next to the store, so that both can be copied together."""
        return f"..{self.locate(sha256).removeprefix(str(self.root.parent))}"

    def put(self, png: bytes) -> Screenshot:
        """Store an image if it is new and return its reference. Raises `StoreError`, and `ValueError` for no PNG."""
        shot = describe_png(png)
        if not _renew(self.path(shot.sha256)):
            write_atomic(self.png(shot.sha256), png)
        return shot

    def copy(self, sha256: str, origin: ScreenshotStore) -> None:
        """Store an image of another store if it is new, as it is encoded there. Raises `StoreError`."""
        content = origin.get(sha256)
        if _renew(self.path(sha256)):
            return
        if content.startswith(PNG_SIGNATURE):
            write_atomic(self.png(sha256), content)
        elif line := origin.find_recoded(sha256):
            self.note_recoded(sha256[:2], [line])
            write_atomic(self.webp(sha256), content)

    def get(self, sha256: str) -> bytes:
        """Return an image's bytes (PNG or WebP).

        Raises `MissingImageError` if it is missing or altered, `StoreError` if it can't be read: on a failing share it
        may be whole, and a dataset must not leave it out, because the next preparation would have it.
        """
        path = self.png(sha256)
        try:
            try:
                content = _read(path)
            except FileNotFoundError:
                if not self.webp(sha256).exists():
                    raise
                path = self.webp(sha256)
                content = _read(path)
        except OSError as error:
            kind = MissingImageError if isinstance(error, FileNotFoundError) else StoreError
            raise kind(f"{path}: the screenshot can't be read: {error.strerror}") from error
        digest: str | None = sha256
        record = "its name"
        if path.suffix == ".webp":
            digest, record = map_known(lambda line: line.recoded_sha256, self.find_recoded(sha256)), LEDGER
        if hashlib.sha256(content).hexdigest() != digest:
            message = f"{path}: the screenshot was altered: its content doesn't match {record}"
            raise MissingImageError(message, hint=DAMAGE_HINT)
        return content

    def find_recoded(self, sha256: str) -> Recoded | None:
        """Return an image's ledger line; None if there is no readable one."""
        # Not cached, since it grows while others read; each of the 256 ledgers is small.
        try:
            content = self._ledger(sha256[:2]).read_bytes()
        except OSError:
            return None
        end = len(content)
        while (start := content.rfind(b'{"sha256":"%b"' % sha256.encode(), 0, end)) >= 0:
            try:
                return Recoded.model_validate_json(content[start:].partition(b"\n")[0])
            except ValidationError:
                end = start
        return None

    def note_recoded(self, folder: str, lines: Iterable[Recoded]) -> None:
        """Append to a folder's (`3f`) ledger durably. Raises `StoreError`."""
        append_lines(self._ledger(folder), *(line.model_dump_json() for line in lines))

    def folders(self) -> list[str]:
        """Return the names of the folders with images, sorted."""
        if not self.root.is_dir():
            return []
        names = (entry.name for entry in self.root.iterdir())
        return sorted(name for name in names if len(name) == 2 and _DIGITS.issuperset(name))

    def images(self, folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield digest and file of each image in a folder; an image in both formats appears twice."""
        with os.scandir(self.root / folder) as entries:
            for entry in entries:
                name, _, suffix = entry.name.partition(".")
                if suffix in ("png", "webp") and len(name) == 64 and _DIGITS.issuperset(name):
                    yield name, entry

    def _ledger(self, folder: str) -> Path:
        return self.root / folder / LEDGER


def png_size(png: bytes) -> tuple[int, int]:
    """Return width and height in pixels. Raises `ValueError` if the bytes are not a PNG."""
    if len(png) < 24 or not png.startswith(PNG_SIGNATURE):
        raise ValueError("a screenshot is not a PNG image")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def describe_png(png: bytes) -> Screenshot:
    """Return the reference of an image. Raises `ValueError` if the bytes are not a PNG."""
    width, height = png_size(png)
    return Screenshot(sha256=hashlib.sha256(png).hexdigest(), width=width, height=height)


def data_url_type(image: bytes) -> str:
    """Return the MIME type of a stored image, from its first bytes."""
    return "image/png" if image.startswith(PNG_SIGNATURE) else "image/webp"


def data_url(image: bytes) -> str:
    """Return a stored image as a data URL."""
    return f"data:{data_url_type(image)};base64,{base64.b64encode(image).decode()}"


def _renew(path: Path) -> bool:
    """Set an image's modification time to now; return whether it exists."""
    # This restarts the grace period of `webgym gc`: the line that references the image is not written yet.
    try:
        os.utime(path)
    except PermissionError:  # another user's file exists; only its time stays unchanged
        return True
    except OSError:
        return False
    return True


def _read(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read()


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
