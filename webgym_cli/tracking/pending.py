"""Which events of `metrics.jsonl` are still to be handed over: all behind a mark that only a success moves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from webgym_cli.errors import StoreError
from webgym_cli.store.run import RunDir
from webgym_cli.util.files import read_json, write_json


@dataclass(frozen=True, slots=True)
class PendingEvents:
    """What was not handed over yet."""

    events: tuple[dict[str, Any], ...]
    """In their order; damaged lines left out."""
    iteration: int
    """The newest iteration that the events before them named."""
    end: int
    """Bytes of `metrics.jsonl` up to the last of them."""


def has_pending(run: RunDir, destination: str) -> bool:
    """Return whether there is anything to hand over."""
    # By lengths only: it is asked after every event.
    size = run.metrics.stat().st_size if run.metrics.is_file() else 0
    return size != _count_sent(run, destination, size)


def read_pending(run: RunDir, destination: str) -> PendingEvents:
    """Return what the destination does not have yet. A torn last line waits until it is closed."""
    content = run.metrics.read_bytes() if run.metrics.is_file() else b""
    whole = content[: content.rfind(b"\n") + 1]
    start = _count_sent(run, destination, len(whole))
    before = [event["iteration"] for event in _events(whole[:start]) if isinstance(event.get("iteration"), int)]
    return PendingEvents(tuple(_events(whole[start:])), before[-1] if before else 0, len(whole))


def mark_sent(run: RunDir, destination: str, end: int) -> None:
    """Note that everything up to here was handed over. Raises `StoreError`."""
    write_json(run.tracking, {**_marks(run), destination: end})


def _count_sent(run: RunDir, destination: str, size: int) -> int:
    """Return how many bytes the destination has; 0 where that is not known, or was of a longer file."""
    end = _marks(run).get(destination)
    return end if isinstance(end, int) and 0 <= end <= size else 0


def _marks(run: RunDir) -> dict[str, Any]:
    """Return the bytes of `metrics.jsonl` that each destination has; none where the file can't be read."""
    try:
        marks = read_json(run.tracking)
    except StoreError:
        return {}
    return marks if isinstance(marks, dict) else {}


def _events(lines: bytes) -> list[dict[str, Any]]:
    events = []
    for line in lines.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            events.append(event)
    return events
