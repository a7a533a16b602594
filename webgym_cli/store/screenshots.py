"""Content-addressed images: written once, before the line that names them."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

from webgym_cli.errors import StoreError
from webgym_cli.records.trajectory import Screenshot
from webgym_cli.store.files import write_atomic

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


class ScreenshotStore:
    """PNG files under `<root>/3f/3f9a….png`, named by the SHA-256 of their bytes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        """The folder of the store."""

    def path(self, sha256: str) -> Path:
        """Return where an image is or would be."""
        return self.root / sha256[:2] / f"{sha256}.png"

    def put(self, png: bytes) -> Screenshot:
        """Store an image unless it is there, and return its reference. Raises `StoreError`."""
        width, height = png_size(png)
        sha256 = hashlib.sha256(png).hexdigest()
        path = self.path(sha256)
        if not path.exists():
            write_atomic(path, png)
        return Screenshot(sha256=sha256, width=width, height=height)

    def get(self, sha256: str) -> bytes:
        """Return an image's bytes. Raises `StoreError` when it is missing or altered."""
        path = self.path(sha256)
        try:
            png = path.read_bytes()
        except OSError as error:
            raise StoreError(f"{path}: the screenshot can't be read: {error.strerror}") from error
        if hashlib.sha256(png).hexdigest() != sha256:
            raise StoreError(f"{path}: the screenshot was altered: its content doesn't match its name")
        return png


def png_size(png: bytes) -> tuple[int, int]:
    """Return width and height in pixels. Raises `StoreError` when the bytes are no PNG."""
    if len(png) < 24 or not png.startswith(PNG_SIGNATURE):
        raise StoreError("a screenshot is not a PNG image")
    width, height = struct.unpack(">II", png[16:24])
    return width, height
