"""Where an export is written: a stream, a file, a new folder. A file or a folder has its name only once it is whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from webgym_cli.errors import UsageError
from webgym_cli.prepare.export.formats import FILES
from webgym_cli.prepare.export.options import ExportOptions
from webgym_cli.util.files import replace_folder

Emit = Callable[[str], None]
"""Takes a line without its end."""


@dataclass(frozen=True, slots=True)
class ExportOutput:
    """Where the records of an export go."""

    emit: Emit
    """Takes the lines of the forms that are text."""
    final: Path | None = None
    """The folder that is exported; None for a file or a stream."""
    building: Path | None = None
    """Where that folder lies while it is written."""


@contextmanager
def open_output(out: Path | None, options: ExportOptions, emit: Emit) -> Iterator[ExportOutput]:
    """Yield the target: `emit` without a path, a file for one with a suffix, else a folder.

    Raises `UsageError` where there is something already that is no such file, and `OSError`.
    """
    if out is None and options.format.needs_folder:
        raise UsageError(f"--format {options.format} makes a folder", hint="add -o DIR")
    if out is None:
        yield ExportOutput(emit)
    elif out.suffix and not options.format.needs_folder and not out.is_dir():
        with _file(out) as written:
            yield ExportOutput(written)
    else:
        with _folder(out.absolute()) as building:
            if options.format.needs_folder:
                yield ExportOutput(emit, out.absolute(), building)
            else:
                with _file(building / FILES[options.format]) as written:
                    yield ExportOutput(written, out.absolute(), building)


@contextmanager
def _file(path: Path) -> Iterator[Emit]:
    """Yield what writes lines into a file that takes its name when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            yield lambda line: _write(file.write, line)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _write(write: Callable[[str], int], line: str) -> None:
    write(f"{line}\n")


@contextmanager
def _folder(final: Path) -> Iterator[Path]:
    """Yield a folder beside, which takes its name when the block ends well."""
    if final.exists() and (not final.is_dir() or any(final.iterdir())):
        raise UsageError(f"{final}: there is something already", hint="name another folder, or remove this one")
    building = final.with_name(f".{final.name}.partial")
    shutil.rmtree(building, ignore_errors=True)
    try:
        building.mkdir(parents=True)
        yield building
        replace_folder(building, final)
    finally:
        shutil.rmtree(building, ignore_errors=True)
