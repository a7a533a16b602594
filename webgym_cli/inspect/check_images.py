"""Check of all referenced images: they must exist, be unaltered and readable, and have the recorded size."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from PIL import Image

from webgym_cli.errors import StoreError
from webgym_cli.inspect.findings import FindingKind, Findings
from webgym_cli.inspect.references import Reference, References
from webgym_cli.records.events import make_event
from webgym_cli.store.index.fragments import SourceFile
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.util.text import format_count

# A finding's kind and detail, or width and height in pixels.
_ImageCheck = tuple[FindingKind, str] | tuple[int, int]


def check_images(
    store: ScreenshotStore, references: References, sources: list[SourceFile], findings: Findings
) -> dict[str, int]:
    """Check the images folder by folder, two at a time.

    Returns the number of referenced images (`named`), of stored files (`stored`), and of stored files without reference
    (`unnamed`).
    """
    counts = {"named": 0, "stored": 0, "unnamed": 0}
    there, folders = set(store.folders()), references.folders()
    with ThreadPoolExecutor(min(2, len(os.sched_getaffinity(0)))) as pool:
        for number, folder in enumerate(folders):
            by_name: dict[str, list[Reference]] = {}
            for reference in references.of(folder):
                by_name.setdefault(reference.sha256, []).append(reference)
            files = [sha256 for sha256, _ in store.images(folder)] if folder in there else []
            counts["named"] += len(by_name)
            counts["stored"] += len(files)
            counts["unnamed"] += sum(sha256 not in by_name for sha256 in files)
            for look, named in zip(pool.map(partial(_check_image, store), by_name), by_name.values(), strict=True):
                _report(store, look, named, sources, findings)
            progress = {"bar": "images", "done": number + 1, "total": len(folders), "transient": True}
            findings.sink(make_event("verify_progress", **progress))
    return counts


def _check_image(store: ScreenshotStore, sha256: str) -> _ImageCheck:
    path = store.path(sha256)
    if not path.exists():
        return FindingKind.IMAGE_MISSING, "there is no such file"
    try:
        content = store.get(sha256)
    except StoreError as error:
        return FindingKind.IMAGE_ALTERED, str(error).removeprefix(f"{path}: ")
    try:
        with Image.open(io.BytesIO(content)) as image:
            size: tuple[int, int] = image.size
            image.verify()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # from Pillow
        return FindingKind.IMAGE_BROKEN, str(error).partition("<")[0].strip()
    return size


def _report(
    store: ScreenshotStore, look: _ImageCheck, named: list[Reference], sources: list[SourceFile], findings: Findings
) -> None:
    """Add the findings for an image, and for trajectories with another size of it."""
    path = store.path(named[0].sha256)
    if isinstance(look[0], FindingKind):
        steps = format_count(len(named), "step")
        first = f"{steps} of {_line(named[0], sources)} on show it" if named[0].width else "an agent's call shows it"
        findings.add(look[0], path, "", f"{look[1]}; {first}")
        return
    for reference in named:
        if reference.width and (reference.width, reference.height) != look:
            recorded = f"{reference.width}x{reference.height}"
            detail = f"it is {look[0]}x{look[1]}, {_line(reference, sources)} has {recorded}"
            findings.add(FindingKind.IMAGE_SIZE, path, "", detail)


def _line(reference: Reference, sources: list[SourceFile]) -> str:
    return f"{sources[reference.source].path} (byte {reference.start})"
