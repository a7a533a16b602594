"""`metrics.jsonl`: one event per line, append-only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import ValidationError

from webgym_cli.records.events import Event
from webgym_cli.records.stored_events import StoredEvent
from webgym_cli.store.run import RunDir, now
from webgym_cli.util.files import append_lines, read_valid_lines
from webgym_cli.util.json_values import encode_json, parse_object

EventT = TypeVar("EventT", bound=StoredEvent)


def append_event(run: RunDir, event: Event) -> None:
    """Append an event with its time, without its message. Raises `StoreError`."""
    facts = {key: value for key, value in event.items() if key != "message"}
    append_lines(run.metrics, encode_json({**facts, "at": now()}))


def read_events(run: RunDir, *names: str) -> Iterator[dict[str, Any]]:
    """Yield the events with these names, oldest first; a line truncated by a crash is skipped."""
    for event in read_valid_lines(run.metrics, parse_object):
        if event.get("event") in names:
            yield event


def read_valid_events(run: RunDir, record: type[StoredEvent]) -> Iterator[dict[str, Any]]:
    """Yield the valid events of a kind with all their keys, oldest first; invalid ones are skipped."""
    for event in read_events(run, record.name_of_event):
        with contextlib.suppress(ValidationError):
            record.model_validate(event)
            yield event


def read_records(run: RunDir, record: type[EventT]) -> Iterator[EventT]:
    """Yield the events of a kind as records, oldest first; invalid ones are skipped."""
    for event in read_events(run, record.name_of_event):
        with contextlib.suppress(ValidationError):
            yield record.model_validate(event)
