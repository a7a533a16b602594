"""Pending events of `metrics.jsonl`: those after an offset that only a successful upload advances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from webgym_cli.store.run import RunDir
from webgym_cli.util.files import file_size, parse_valid, read_optional_object, write_json
from webgym_cli.util.json_values import parse_object


@dataclass(frozen=True, slots=True)
class PendingEvents:
    """Events that are not uploaded yet."""

    events: tuple[dict[str, Any], ...]
    """In their order; damaged lines left out."""
    iteration: int
    """The newest iteration that the events before them named."""
    end: int
    """Bytes of `metrics.jsonl` up to the last of them."""


def has_pending(run: RunDir, destination: str) -> bool:
    """Return whether any event is pending."""
    # Compares lengths only, because it is called after every event.
    size = file_size(run.metrics)
    return size != _count_sent(run, destination, size)


def read_pending(run: RunDir, destination: str) -> PendingEvents:
    """Return the destination's pending events. An incomplete last line stays pending."""
    content = run.metrics.read_bytes() if run.metrics.is_file() else b""
    whole = content[: content.rfind(b"\n") + 1]
    start = _count_sent(run, destination, len(whole))
    before = [event["iteration"] for event in _events(whole[:start]) if isinstance(event.get("iteration"), int)]
    return PendingEvents(tuple(_events(whole[start:])), next(reversed(before), 0), len(whole))


def mark_sent(run: RunDir, destination: str, end: int) -> None:
    """Record that everything up to offset `end` is uploaded. Raises `StoreError`."""
    write_json(run.tracking, {**read_optional_object(run.tracking), destination: end})


def _count_sent(run: RunDir, destination: str, size: int) -> int:
    """Return the number of uploaded bytes; 0 if unknown, or if the file is shorter than that."""
    end = read_optional_object(run.tracking).get(destination)
    return end if isinstance(end, int) and 0 <= end <= size else 0


def _events(lines: bytes) -> list[dict[str, Any]]:
    return [event for event in parse_valid(lines.splitlines(), parse_object) if isinstance(event.get("event"), str)]
