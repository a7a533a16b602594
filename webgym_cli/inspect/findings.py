"""What `--verify` finds wrong: each with its place and the command that mends it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from webgym_cli.records.events import EventSink, make_event

# Findings that the summary lists; all of them are sent as events.
LISTED = 100


class FindingKind(StrEnum):
    """What can be wrong with a buffer."""

    DAMAGED_LINE = "damaged_line"
    """A line of the truth can't be read: every command skips it."""
    LINES_MISSING = "lines_missing"
    """A file of the truth was cut, replaced or deleted: the index or the metrics know of more."""
    DAMAGED_RECORD = "damaged_record"
    """A checkpoint's record, `run.json` or a line of the metrics can't be read: every command skips it."""
    MISPLACED_LINE = "misplaced_line"
    """A trajectory stands in the file of another split or iteration."""
    DUPLICATE_ID = "duplicate_id"
    """Two lines have a trajectory of the same id."""
    OBSERVATION_ALTERED = "observation_altered"
    """An observation's screenshot, elements, address or title are not those that were stored together."""
    LONE_JUDGEMENT = "lone_judgement"
    """A judgement is of a trajectory that isn't there."""
    INDEX_UNREADABLE = "index_unreadable"
    INDEX_LACKS = "index_lacks"
    """The truth has a row that the index has not."""
    INDEX_EXTRA = "index_extra"
    """The index has a row that the truth has not."""
    INDEX_DIFFERS = "index_differs"
    """A row of the index is not what the truth makes of it: one of the two was altered."""
    IMAGE_MISSING = "image_missing"
    IMAGE_ALTERED = "image_altered"
    """Its content is not what its name, or the ledger, says."""
    IMAGE_BROKEN = "image_broken"
    """It is what was stored, but no image."""
    IMAGE_SIZE = "image_size"
    """Its width and height are not those that the trajectory has."""


@dataclass(slots=True)
class Findings:
    """Counts what is found, sends each finding as an event, keeps the first for the summary."""

    root: Path
    """The run's folder."""
    sink: EventSink
    counts: Counter[str] = field(default_factory=Counter)
    """By kind."""
    first: list[dict[str, Any]] = field(default_factory=list)

    def add(self, kind: FindingKind, file: Path, place: str, detail: str) -> None:
        """Take a finding. `place`: where in the file, as people say it; empty for the whole of it."""
        finding = {"kind": kind.value, "file": str(file), "place": place, "detail": detail, "mend": self._mend(kind)}
        self.counts[kind.value] += 1
        if len(self.first) < LISTED:
            self.first.append(finding)
        self.sink(make_event("finding", **finding))

    def _mend(self, kind: FindingKind) -> str:
        if kind.value.startswith("index_"):
            return f"webgym inspect-buffer {self.root} --reindex"
        if kind in (FindingKind.DUPLICATE_ID, FindingKind.MISPLACED_LINE, FindingKind.LONE_JUDGEMENT):
            return f"take the line out of the file, then webgym inspect-buffer {self.root} --reindex"
        return f"restore the file from a copy; webgym prepare {self.root} leaves out what can't be read"
