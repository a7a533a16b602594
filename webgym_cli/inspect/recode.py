"""Lossless re-encoding of PNG screenshots as WebP. It can be stopped at any point and repeated.

For each image the WebP is written durably, then its ledger line, then the PNG is removed.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from PIL import Image

from webgym_cli.errors import StoreError
from webgym_cli.inspect.gc import read_dataset_images, remove
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import Recoded, ScreenshotStore
from webgym_cli.util.files import is_within, write_atomic

# Encoder effort from 0 to 100 (`quality` in lossless mode); 100 saves two more percent and takes 1.5 times as long.
_EFFORT = 80
# Number of images per append to a ledger.
_BATCH = 64
# PNG modes that WebP can represent, which excludes 16 bits per channel.
_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA"})
# Maximum side length of a WebP in pixels.
_WIDEST = 16383


@dataclass(frozen=True, slots=True)
class RecodeJob:
    """The images of one folder that are to be re-encoded."""

    folder: str
    images: int
    bytes: int


@dataclass(slots=True)
class RecodeStats:
    """Result of re-encoding."""

    recoded: int = 0
    kept: int = 0
    """PNGs that are kept: a WebP would be larger, or can't represent the pixels."""
    altered: list[str] = field(default_factory=list)
    """Unchanged PNGs whose content does not match their name."""
    bytes_before: int = 0
    """Total size of the processed images."""
    bytes_after: int = 0


def plan_recoding(run: RunDir) -> Iterator[RecodeJob]:
    """Yield the images to re-encode, by folder."""
    # Excludes images that were tried before, and those of the prepared dataset, whose paths end in .png.
    store, of_dataset = ScreenshotStore(run.screenshots), frozenset(read_dataset_images(run))
    for folder in store.folders():
        if not is_within(store.root / folder, run.root):  # a link to another folder, which does not belong to this run
            continue
        if sizes := _pending(store, folder, of_dataset):
            yield RecodeJob(folder, len(sizes), sum(sizes.values()))


def execute(
    run: RunDir, todo: list[RecodeJob], *, workers: int | None = None, sink: EventSink | None = None
) -> RecodeStats:
    """Re-encode with `workers` threads (default: one per core). Needs the lock. Raises `StoreError`."""
    store, of_dataset, saved = ScreenshotStore(run.screenshots), frozenset(read_dataset_images(run)), RecodeStats()
    total, done = sum(part.images for part in todo), 0
    with ThreadPoolExecutor(workers or len(os.sched_getaffinity(0))) as pool:
        for part in todo:
            images = sorted(_pending(store, part.folder, of_dataset))
            for start in range(0, len(images), _BATCH):
                batch = images[start : start + _BATCH]
                sizes = dict(zip(batch, pool.map(partial(_recode, store), batch), strict=True))
                _finish(store, part.folder, [line for line in sizes.values() if line is not None], saved)
                saved.altered += [str(store.png(sha256)) for sha256, line in sizes.items() if line is None]
                done += len(batch)
                if sink is not None:
                    facts = f"{(saved.bytes_before - saved.bytes_after) / 1e6:.1f} MB saved"
                    progress = {"bar": "recode", "done": done, "total": total, "facts": facts, "transient": True}
                    sink(make_event("recode_progress", **progress))
    return saved


def _pending(store: ScreenshotStore, folder: str, of_dataset: frozenset[str]) -> dict[str, int]:
    """Return the PNGs of a folder that are to be re-encoded, with their sizes in bytes."""
    stay = {sha256 for sha256, line in store.ledger(folder).items() if line.recoded_sha256 is None}
    return {
        sha256: entry.stat().st_size
        for sha256, entry in store.images(folder)
        if entry.name.endswith(".png") and sha256 not in stay and sha256 not in of_dataset
    }


def _finish(store: ScreenshotStore, folder: str, lines: list[Recoded], saved: RecodeStats) -> None:
    """Append a batch to the ledger durably, then remove its PNGs."""
    if lines:
        store.note_recoded(folder, lines)
    for line in lines:
        saved.bytes_before += line.bytes_before
        saved.bytes_after += line.bytes_after
        if line.recoded_sha256 is None:
            saved.kept += 1
        else:
            saved.recoded += 1
            remove(store.png(line.sha256))


def _recode(store: ScreenshotStore, sha256: str) -> Recoded | None:
    """Write the WebP of a PNG unless it would be larger; None if the PNG does not match its name."""
    try:
        png = store.get(sha256)
    except StoreError:
        return None
    webp = encode(png)
    if webp is None or len(webp) >= len(png):
        return Recoded(sha256=sha256, recoded_sha256=None, bytes_before=len(png), bytes_after=len(png))
    write_atomic(store.webp(sha256), webp)
    digest = hashlib.sha256(webp).hexdigest()
    return Recoded(sha256=sha256, recoded_sha256=digest, bytes_before=len(png), bytes_after=len(webp))


def encode(png: bytes) -> bytes | None:
    """Return a lossless WebP of a PNG, verified by decoding it; None if it is impossible."""
    try:
        with Image.open(io.BytesIO(png)) as image:
            if image.mode not in _MODES or max(image.size) > _WIDEST or getattr(image, "n_frames", 1) > 1:
                return None
            pixels = image.convert("RGBA" if image.has_transparency_data else "RGB")
            profile = image.info.get("icc_profile")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):  # Pillow's exceptions for an invalid PNG
        return None
    written = io.BytesIO()
    pixels.save(written, "WEBP", lossless=True, exact=True, quality=_EFFORT, icc_profile=profile)
    with Image.open(io.BytesIO(written.getvalue())) as again:
        same = again.convert(pixels.mode).tobytes() == pixels.tobytes()
    return written.getvalue() if same else None
