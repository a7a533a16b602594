"""The log of a training, `trainer_log.jsonl`, when the training resumes."""

from __future__ import annotations

import json
from pathlib import Path


def trim_log(path: Path, step: int) -> None:
    """Remove lines after a step: the training resumes there and logs them again."""
    if not path.is_file():
        return
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    kept = [line for line in lines if 0 < _step(line) <= step]
    work = path.with_name(f"{path.name}.new")
    work.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    work.rename(path)


def _step(line: str) -> int:
    """Return the step of a line, 0 for a torn one."""
    try:
        return int(json.loads(line)["current_steps"])
    except (ValueError, KeyError, TypeError):
        return 0
