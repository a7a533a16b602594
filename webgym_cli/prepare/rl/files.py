"""Files of a policy-gradient batch: trajectories and rows line by line, then the summary that marks it complete."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from webgym_cli.records.dataset import ROWS, SUMMARY, TRAJECTORIES, RlData
from webgym_cli.util.files import WriteLine, open_line_writer, write_json

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class BatchFiles:
    """Open files of a batch, with the counts of its rows."""

    def __init__(self, to_rows: WriteLine, to_trajectories: WriteLine) -> None:
        self._to_rows, self._to_trajectories = to_rows, to_trajectories
        self.rows = self.tokens = self.trained_tokens = 0

    def add_trajectory(self, line: dict[str, Any]) -> None:
        """Write a line of `trajectories.jsonl`."""
        self._to_trajectories(_encode(line))

    def add_row(self, line: dict[str, Any]) -> None:
        """Write a line of `rows.jsonl`."""
        self._to_rows(_encode(line))
        self.rows += 1
        self.tokens += len(line["input_ids"])
        self.trained_tokens += len(line["logprobs"])


@contextmanager
def open_batch(folder: Path) -> Iterator[BatchFiles]:
    """Yield the files of a new batch. Raises `OSError`."""
    with open_line_writer(folder / ROWS) as to_rows, open_line_writer(folder / TRAJECTORIES) as to_trajectories:
        yield BatchFiles(to_rows, to_trajectories)


def write_summary(folder: Path, files: BatchFiles, **facts: Any) -> RlData:
    """Write `rl.json` of a batch whose files are closed. `facts`: the fields that its rows do not tell."""
    with (folder / ROWS).open("rb") as rows:
        digest = hashlib.file_digest(rows, "sha256").hexdigest()
    counts = {"rows": files.rows, "tokens": files.tokens, "trained_tokens": files.trained_tokens}
    data = RlData(**counts, digest=digest, **facts)
    write_json(folder / SUMMARY, data.facts())
    return data
