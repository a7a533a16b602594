"""Outputs of an export: a stream, a file, or a new folder. Files and folders get their final name when complete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from webgym_cli.errors import UsageError
from webgym_cli.prepare.export.options import ExportOptions
from webgym_cli.store.outputs import check_output
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore, data_url
from webgym_cli.util.files import WriteLine, open_line_writer, rebuild_folder

# Cache sizes for image paths and image contents: neighbouring records mostly share images.
KEPT_PATHS, KEPT_BYTES = 2**14, 64


class ExportOutput:
    """Output of a format. All images of an example are verified before the format receives it."""

    def __init__(
        self,
        options: ExportOptions,
        run: RunDir,
        emit: WriteLine,
        final: Path | None = None,
        building: Path | None = None,
        holds_images: bool = False,
    ) -> None:
        """`final`, `building`: the folder's final path and its path during writing; None for a single file."""
        self.options = options
        """Options from the command line."""
        self.write_line = emit
        """Writes a line, given without its end, to the file or stream."""
        self.building = building
        self.holds_images = holds_images or options.embed_images
        self.run = run
        """Run that is exported, for what else it stores."""
        self._store, self._final = ScreenshotStore(run.screenshots.resolve()), final
        self._copies = options.copy_images and options.copy_images.absolute()
        self.image_bytes = lru_cache(KEPT_BYTES)(self._store.get)
        """Returns a screenshot's content (PNG or WebP) by its SHA-256."""
        self._locate_cached = lru_cache(KEPT_PATHS)(self._locate)

    @property
    def folder(self) -> Path:
        """Folder for the files of a format without a `file_name`; it is renamed when complete."""
        assert self.building is not None, "only formats without a file name have a folder"
        return self.building

    def check_image(self, sha256: str) -> None:
        """Raise `StoreError` for a missing or altered image, and `OSError` if its copy can't be written."""
        # Formats with embedded images need the bytes next, which are then cached.
        (self.image_bytes if self.holds_images else self._locate_cached)(sha256)

    def image_path(self, sha256: str) -> str:
        """Return a screenshot's path: absolute, or relative to the exported folder if it lies within."""
        path = self._locate_cached(sha256)
        inside = self._final is not None and path.is_relative_to(self._final)
        return path.relative_to(self._final).as_posix() if self._final and inside else str(path)

    def image_name(self, sha256: str) -> str:
        """Return a screenshot's file name: `<sha256>.png` or `.webp`."""
        return self._store.path(sha256).name

    def image_url(self, sha256: str) -> str:
        """Return a screenshot as a `file:` URL, or with --embed-images as a data URL."""
        if self.options.embed_images:
            return data_url(self.image_bytes(sha256))
        return self._locate_cached(sha256).as_uri()

    def _locate(self, sha256: str) -> Path:
        """Return the absolute path of a verified image: the run's own, or a copy."""
        content, path = self._store.get(sha256), self._store.path(sha256)
        if self._copies is None:
            return path
        named = real = self._copies / path.name
        if self._final and self.building and named.is_relative_to(self._final):
            real = self.building / named.relative_to(self._final)
        # A truncated copy has another size; the content was verified by its digest when it was read.
        if not real.exists() or real.stat().st_size != len(content):
            real.parent.mkdir(parents=True, exist_ok=True)
            temporary = real.with_name(f".{real.name}")
            temporary.write_bytes(content)
            temporary.replace(real)
        return named


@contextmanager
def open_output(
    out: Path | None, file_name: str | None, options: ExportOptions, run: RunDir, emit: WriteLine
) -> Iterator[ExportOutput]:
    """Yield the output: `emit` without a path, a file for a path with a suffix, otherwise a folder.

    `file_name`: the format's file within a folder; None: it writes several files. Raises `UsageError` if something else
    exists at the path, and `OSError`.
    """
    if out is None:
        if file_name is None:
            raise UsageError(f"--format {options.format} makes a folder", hint="add -o DIR")
        yield ExportOutput(options, run, emit)
    elif file_name is not None and out.suffix and not out.is_dir():
        with _open_file(out) as written:
            yield ExportOutput(options, run, written)
    else:
        final = out.absolute()
        with _open_folder(final) as building:
            if file_name is None:
                yield ExportOutput(options, run, emit, final, building, holds_images=True)
            else:
                with open_line_writer(building / file_name) as written:
                    yield ExportOutput(options, run, written, final, building)


@contextmanager
def _open_file(out: Path) -> Iterator[WriteLine]:
    """Yield the writer of a file's lines. The first line decides whether a file that is there may be replaced."""
    is_checked = False

    def write_checked(line: str) -> None:
        nonlocal is_checked
        if not is_checked:
            check_output(out, f"{line}\n".encode())
            is_checked = True
        write_line(line)

    with open_line_writer(out) as write_line:
        yield write_checked
        if not is_checked:
            check_output(out, b"")


@contextmanager
def _open_folder(final: Path) -> Iterator[Path]:
    """Yield a folder next to the final one, to which it is renamed on success."""
    if final.exists() and (not final.is_dir() or any(final.iterdir())):
        raise UsageError(f"{final}: there is something already", hint="name another folder, or remove this one")
    with rebuild_folder(final) as building:
        yield building
