"""The images: named by their content, written once, before the line that names them.

A PNG can give way to a WebP of the same pixels (`webgym gc RUN --recode webp`). Its name stays the digest of the PNG;
the ledger of its folder, `3f/recoded.jsonl`, has the digest of what took its place.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import Field, ValidationError

from webgym_cli.errors import StoreError
from webgym_cli.records.base import Record
from webgym_cli.records.trajectory import Screenshot
from webgym_cli.util.files import append_lines, read_lines, write_atomic

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Name of a folder's ledger.
LEDGER = "recoded.jsonl"
_DIGITS = frozenset("0123456789abcdef")


class Recoded(Record):
    """What became of a PNG that was to be re-encoded: one line of a ledger. The newest line of an image counts."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Digest of the PNG, which remains the image's name."""
    recoded_sha256: str | None = Field(pattern=r"^[0-9a-f]{64}$")
    """Digest of the WebP; None: the PNG is kept, because a WebP would be larger or can't represent it."""
    bytes_before: int
    """Size of the PNG."""
    bytes_after: int
    """Size of the stored file."""


class ScreenshotStore:
    """Image files under `<root>/3f/3f9a….png` (or `.webp`), named by the SHA-256 of the PNG's bytes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        """The folder of the store."""

    def png(self, sha256: str) -> Path:
        """Return where an image is, or would be, as it was taken."""
        return self.root / sha256[:2] / f"{sha256}.png"

    def webp(self, sha256: str) -> Path:
        """Return where an image is, or would be, once it is re-encoded."""
        return self.root / sha256[:2] / f"{sha256}.webp"

    def path(self, sha256: str) -> Path:
        """Return the file that holds an image; where its PNG would be when there is none."""
        return Path(self.locate(sha256))

    def locate(self, sha256: str) -> str:
        """Return the same as a text: a dataset names thousands of images."""
        stem = f"{self.root}/{sha256[:2]}/{sha256}"
        webp = not os.path.exists(f"{stem}.png") and os.path.exists(f"{stem}.webp")  # noqa: PTH110
        return f"{stem}.webp" if webp else f"{stem}.png"

    def locate_beside(self, sha256: str) -> str:
        """Return the same as seen from a folder beside the store: what names it so can be copied along with it."""
        return f"..{self.locate(sha256).removeprefix(str(self.root.parent))}"

    def put(self, png: bytes) -> Screenshot:
        """Store an image unless it is there, and return its reference. Raises `StoreError`."""
        width, height = png_size(png)
        sha256 = hashlib.sha256(png).hexdigest()
        if not _renew(self.path(sha256)):
            write_atomic(self.png(sha256), png)
        return Screenshot(sha256=sha256, width=width, height=height)

    def get(self, sha256: str) -> bytes:
        """Return an image's bytes, a PNG or a WebP. Raises `StoreError` when it is missing or altered."""
        try:
            content = self.png(sha256).read_bytes()
        except FileNotFoundError:
            return self._get_webp(sha256)
        except OSError as error:
            raise _unreadable(self.png(sha256), error) from error
        if hashlib.sha256(content).hexdigest() != sha256:
            raise StoreError(f"{self.png(sha256)}: the screenshot was altered: its content doesn't match its name")
        return content

    def _get_webp(self, sha256: str) -> bytes:
        path = self.webp(sha256)
        try:
            content = path.read_bytes()
        except FileNotFoundError as error:
            raise _unreadable(self.png(sha256), error) from error
        except OSError as error:
            raise _unreadable(path, error) from error
        line = self.find_recoded(sha256)
        if line is None or hashlib.sha256(content).hexdigest() != line.recoded_sha256:
            raise StoreError(f"{path}: the screenshot was altered: its content doesn't match {LEDGER}")
        return content

    def find_recoded(self, sha256: str) -> Recoded | None:
        """Return an image's line of the ledger; None without a readable one."""
        # Read anew each time, as it grows while others read; one of 256 ledgers is small enough for that.
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

    def ledger(self, folder: str) -> dict[str, Recoded]:
        """Return what the ledger of a folder says of each image; a line that can't be read says nothing."""
        path, entries = self._ledger(folder), {}
        for _, text in read_lines(path) if path.is_file() else ():
            with contextlib.suppress(ValidationError):
                line = Recoded.model_validate_json(text)
                entries[line.sha256] = line
        return entries

    def note_recoded(self, folder: str, lines: Iterable[Recoded]) -> None:
        """Append to the ledger of a folder (`3f`) durably. Raises `StoreError`."""
        append_lines(self._ledger(folder), *(line.model_dump_json() for line in lines))

    def folders(self) -> list[str]:
        """Return the names of the folders that hold images, in order."""
        if not self.root.is_dir():
            return []
        return sorted(entry.name for entry in self.root.iterdir() if len(entry.name) == 2 and _is_hex(entry.name))

    def images(self, folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield the digest and the file of each image in a folder; an image in both forms comes twice."""
        with os.scandir(self.root / folder) as entries:
            for entry in entries:
                name, _, suffix = entry.name.partition(".")
                if suffix in ("png", "webp") and len(name) == 64 and _is_hex(name):
                    yield name, entry

    def _ledger(self, folder: str) -> Path:
        return self.root / folder / LEDGER


def png_size(png: bytes) -> tuple[int, int]:
    """Return width and height in pixels. Raises `StoreError` when the bytes are no PNG."""
    if len(png) < 24 or not png.startswith(PNG_SIGNATURE):
        raise StoreError("a screenshot is not a PNG image")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def data_url_type(image: bytes) -> str:
    """Return the MIME type of an image of the store by its first bytes."""
    return "image/png" if image.startswith(PNG_SIGNATURE) else "image/webp"


def data_url(image: bytes) -> str:
    """Return an image of the store as a data URL."""
    return f"data:{data_url_type(image)};base64,{base64.b64encode(image).decode()}"


def _renew(path: Path) -> bool:
    """Return whether an image is stored, with its modification time set to now."""
    # The grace period of `webgym gc` begins anew: the line that names the image is still to be written.
    try:
        os.utime(path)
    except PermissionError:  # another user's file: it is there, only its age stays
        return True
    except OSError:
        return False
    return True


def _is_hex(name: str) -> bool:
    return _DIGITS.issuperset(name)


def _unreadable(path: Path, error: OSError) -> StoreError:
    return StoreError(f"{path}: the screenshot can't be read: {error.strerror}")
