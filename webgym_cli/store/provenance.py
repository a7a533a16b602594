"""Who made a run, with which versions: `run.json`, which is never rewritten."""

from __future__ import annotations

import platform
import sys
from contextlib import suppress
from pathlib import Path

import webgym_cli
from webgym_cli.errors import StoreError
from webgym_cli.util.files import read_json


def build_provenance(created_at: str) -> dict[str, object]:
    """Return the content of a new run's `run.json`."""
    return {
        "created_at": created_at,
        "argv": sys.argv,
        "webgym": webgym_cli.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def read_newer_version(file: Path) -> str:
    """Return the version that made a run where it is a newer one than this; else empty, also for a damaged file."""
    with suppress(StoreError, TypeError, KeyError, ValueError, AttributeError):
        writer = read_json(file)["webgym"]
        return str(writer) if _minor(writer) > _minor(webgym_cli.__version__) else ""
    return ""


def _minor(version: str) -> list[int]:
    """Return the parts of a version that change settings and records."""
    return [int(part) for part in version.split(".")[:2]]
