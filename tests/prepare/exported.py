"""Runs exports for tests."""

import hashlib
import io
import json
from pathlib import Path
from typing import Any

from PIL import Image

from tests.prepare.buffer import settings
from tests.records.builders import png
from webgym_cli.prepare.export.export import Export, ExportStats
from webgym_cli.prepare.export.options import ExportOptions
from webgym_cli.store.index.selection import TrajectoryQuery
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import Recoded, ScreenshotStore


def exported(
    run: RunDir,
    out: Path | None = None,
    *overrides: str,
    ids: list[str] | None = None,
    query: TrajectoryQuery | None = None,
    **options: Any,
) -> tuple[ExportStats, list[dict[str, Any]]]:
    """Return an export's tally, and the records that it gave as lines; JSON Lines unless told otherwise."""
    lines: list[str] = []
    chosen, named = ExportOptions(**{"format": "jsonl", **options}), None if ids is None else tuple(ids)
    export = Export(run, settings(*overrides), chosen, named, query or TrajectoryQuery(), out)
    return export.execute(lines.append, lambda event: None), [json.loads(line) for line in lines]


def ids(records: list[dict[str, Any]]) -> list[str]:
    """Return the ids of records, shortened: the trajectory's number and the step."""
    return [record["id"].rpartition("-")[2] for record in records]


def digest(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def webp(shade: int) -> bytes:
    """Return the image of `png` as a WebP."""
    content = io.BytesIO()
    Image.open(io.BytesIO(png(shade))).save(content, "WEBP", lossless=True)
    return content.getvalue()


def recode(store: ScreenshotStore, sha256: str, content: bytes) -> None:
    """Replace a stored PNG by a WebP, as earlier versions of `webgym gc` did."""
    names = {"sha256": sha256, "recoded_sha256": hashlib.sha256(content).hexdigest()}
    sizes = {"bytes_before": store.png(sha256).stat().st_size, "bytes_after": len(content)}
    store.webp(sha256).write_bytes(content)
    store.note_recoded(sha256[:2], [Recoded(**names, **sizes)])
    store.png(sha256).unlink()
