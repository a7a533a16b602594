"""Reads what wandb wrote offline: a log of framed protobuf records in blocks of 32 KiB, as LevelDB frames them."""

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from webgym_cli.store.run import RunDir

_IDENT = b":W&B"
_PREAMBLE, _HEADER, _BLOCK = 7, 7, 32768
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


@dataclass
class Segment:
    """One offline file: what one process told of the run."""

    folder: Path
    run: Any = None
    """The run's record."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """What was logged, step by step, without wandb's own values."""
    axes: dict[str, str] = field(default_factory=dict)
    """The metric that a metric is drawn over."""
    config: dict[str, Any] = field(default_factory=dict)

    files: dict[str, Path] = field(default_factory=dict)
    """Where the files of the artifacts lie, by the last parts of their addresses."""

    def table(self, reference: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the rows of a logged table, its images as what they refer to."""
        content = json.loads(self.files[reference["artifact_path"].partition("://")[2].partition("/")[2]].read_text())
        return [dict(zip(content["columns"], row, strict=True)) for row in content["data"]]


def segments(run: RunDir) -> list[Segment]:
    """Return all that was kept offline for a run, oldest first."""
    files = run.logs.glob("attempt_*/**/wandb/offline-run-*/*.wandb")
    return [
        read(file) for file in sorted(files, key=lambda file: (file.relative_to(run.logs).parts[0], file.parent.name))
    ]


def read(file: Path) -> Segment:
    """Return the content of a `.wandb` file."""
    from wandb.proto.wandb_internal_pb2 import Record

    segment = Segment(file.parent)
    for payload in _payloads(file.read_bytes()):
        record = Record()
        record.ParseFromString(payload)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            segment.run = record.run
            segment.config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        elif kind == "history":
            segment.history.append(_logged(record.history.item))
        elif kind == "artifact":
            segment.files |= {entry.path: Path(entry.local_path) for entry in record.artifact.manifest.contents}
        elif kind == "metric" and record.metric.step_metric:
            segment.axes[record.metric.name or record.metric.glob_name] = record.metric.step_metric
    return segment


def _logged(items: Any) -> dict[str, Any]:
    """Return the values of one step; those with a path of several keys as an object."""
    fields: dict[str, Any] = {}
    for item in items:
        *above, last = item.nested_key or [item.key]
        place = fields
        for key in above:
            place = place.setdefault(key, {})
        place[last] = json.loads(item.value_json)
    return {name: value for name, value in fields.items() if not name.startswith("_")}


def _payloads(content: bytes) -> list[bytes]:
    assert content.startswith(_IDENT)
    place, calls, parts = _PREAMBLE, [], []
    while place + _HEADER <= len(content):
        if _BLOCK - place % _BLOCK < _HEADER:  # too short for a header: the rest of a block is padding
            place += _BLOCK - place % _BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", content[place : place + _HEADER])
        assert kind in (_FULL, _FIRST, _MIDDLE, _LAST), f"byte {place}: no record"
        parts.append(content[place + _HEADER : place + _HEADER + length])
        place += _HEADER + length
        if kind in (_FULL, _LAST):
            calls.append(b"".join(parts))
            parts = []
    return calls
