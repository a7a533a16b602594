"""Findings of `--verify`, each with its location and the command that repairs it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from webgym_cli.records.events import EventSink, make_event

# Number of findings in the summary; all of them are sent as events.
LISTED = 100


class FindingKind(StrEnum):
    """Kinds of findings."""

    DAMAGED_LINE = "damaged_line"
    """A line of trajectories or judgements is unreadable; every command skips it."""
    LINES_MISSING = "lines_missing"
    """A source file was truncated, replaced or deleted: the index, the metrics or the checkpoints know of more."""
    DAMAGED_RECORD = "damaged_record"
    """A checkpoint's record, `run.json` or a line of the metrics is unreadable; every command skips it."""
    MISPLACED_LINE = "misplaced_line"
    """A trajectory is in the file of another split or iteration."""
    DUPLICATE_ID = "duplicate_id"
    """Two lines have trajectories with the same id."""
    OBSERVATION_ALTERED = "observation_altered"
    """An observation's screenshot, elements, URL and title are not those that were stored together."""
    LONE_JUDGEMENT = "lone_judgement"
    """A judgement refers to a missing trajectory."""
    INDEX_DIFFERS = "index_differs"
    """A file of the index differs from its source: one of the two was altered."""
    IMAGE_MISSING = "image_missing"
    IMAGE_ALTERED = "image_altered"
    """The content does not match the name, or the ledger."""
    IMAGE_UNREADABLE = "image_unreadable"
    """The disk or a permission fails; the content may be whole."""
    IMAGE_BROKEN = "image_broken"
    """The content is unaltered but not a valid image."""
    IMAGE_SIZE = "image_size"
    """Width and height differ from those in the trajectory."""


@dataclass(slots=True)
class Findings:
    """Collects findings: counts them, sends them as events, and keeps the first ones for the summary."""

    root: Path
    """The run's folder."""
    sink: EventSink
    counts: Counter[str] = field(default_factory=Counter)
    """By kind."""
    first: list[dict[str, Any]] = field(default_factory=list)

    def add(self, kind: FindingKind, file: Path, place: str, detail: str) -> None:
        """Add a finding. `place`: location within the file, in readable form; empty for the whole file."""
        finding = {"kind": kind.value, "file": str(file), "place": place, "detail": detail, "mend": self._mend(kind)}
        self.counts[kind.value] += 1
        if len(self.first) < LISTED:
            self.first.append(finding)
        self.sink(make_event("finding", **finding))

    def _mend(self, kind: FindingKind) -> str:
        if kind is FindingKind.INDEX_DIFFERS:
            return f"webgym inspect-buffer {self.root} --reindex"
        if kind in (FindingKind.DUPLICATE_ID, FindingKind.MISPLACED_LINE, FindingKind.LONE_JUDGEMENT):
            return f"take the line out of the file, then webgym inspect-buffer {self.root} --reindex"
        return f"restore the file from a copy; webgym prepare {self.root} leaves out what can't be read"
