"""What stands for a screenshot in an exported record: a path, a copy, the bytes. Each is checked against its name."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from webgym_cli.prepare.export.formats import Locate
from webgym_cli.prepare.export.options import ExportFormat, ExportOptions
from webgym_cli.store.screenshots import ScreenshotStore, data_url

KEPT_PATHS, KEPT_BYTES = 2**14, 64
"""Images whose path or whose bytes are kept: neighbouring records show mostly the same."""


def build_locator(store: ScreenshotStore, options: ExportOptions, final: Path | None, building: Path | None) -> Locate:
    """Return what stands for an image, by its SHA-256. It raises `StoreError` for one that is missing or altered, and
    `OSError` when a copy can't be written.

    `final`, `building`: the exported folder, and where it lies while it is written; None for a single file.
    """
    if options.format is ExportFormat.HF:
        return lru_cache(KEPT_BYTES)(lambda sha256: {"bytes": store.get(sha256), "path": store.path(sha256).name})
    if options.format is ExportFormat.WEBDATASET:
        return lru_cache(KEPT_BYTES)(store.get)
    if options.embed_images:
        return lru_cache(KEPT_BYTES)(lambda sha256: data_url(store.get(sha256)))
    path = _copied(store, options.copy_images, final, building) if options.copy_images else _own(store)
    if options.format is ExportFormat.OPENAI:
        return lru_cache(KEPT_PATHS)(lambda sha256: path(sha256).as_uri())
    return lru_cache(KEPT_PATHS)(lambda sha256: _relative(path(sha256), final))


def _own(store: ScreenshotStore) -> Callable[[str], Path]:
    def path(sha256: str) -> Path:
        store.get(sha256)
        return store.path(sha256)

    return path


def _copied(store: ScreenshotStore, folder: Path, final: Path | None, building: Path | None) -> Callable[[str], Path]:
    named = folder.absolute()
    inside = final is not None and building is not None and named.is_relative_to(final)
    real = building / named.relative_to(final) if inside and building and final else named

    def path(sha256: str) -> Path:
        content, name = store.get(sha256), store.path(sha256).name
        if not (real / name).exists() or (real / name).stat().st_size != len(content):
            real.mkdir(parents=True, exist_ok=True)
            (real / f".{name}").write_bytes(content)
            (real / f".{name}").replace(real / name)
        return named / name

    return path


def _relative(path: Path, folder: Path | None) -> str:
    """Return an image's path; within the exported folder a relative one, so that the folder can be moved."""
    return path.relative_to(folder).as_posix() if folder and path.is_relative_to(folder) else str(path)
