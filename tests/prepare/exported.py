"""Runs exports for tests."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tests.prepare.buffer import settings
from webgym_cli.prepare.export.export import Export, ExportStats
from webgym_cli.prepare.export.options import ExportOptions
from webgym_cli.store.index.selection import TrajectoryQuery
from webgym_cli.store.run import RunDir


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
    chosen = ExportOptions(**{"format": "jsonl", **options})
    export = Export(
        run, settings(*overrides), chosen, None if ids is None else tuple(ids), query or TrajectoryQuery(), out
    )
    tally = export.execute(lines.append, lambda event: None)
    return tally, [json.loads(line) for line in lines]


def ids(records: list[dict[str, Any]]) -> list[str]:
    """Return the ids of records, shortened: the trajectory's number and the step."""
    return [record["id"].rpartition("-")[2] for record in records]


def digest(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
