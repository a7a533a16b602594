"""Writes `trainer_log.jsonl`: one line per optimizer step, in LLaMA-Factory's format plus metrics."""

from __future__ import annotations

import json
import math
import statistics
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from webgym_cli.records.training_files import TRAINER_LOG
from webgym_cli.util.training_log import trim_log


@dataclass(slots=True)
class TrainerLog:
    """Log of a training that starts, or resumes, after `done` of `total` steps."""

    folder: Path
    total: int
    epochs: int
    done: int
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        """Remove lines that will be logged again."""
        trim_log(self.folder / TRAINER_LOG, self.done)

    def means(self) -> dict[str, float]:
        """Return the mean of each metric over the steps that logged it, including those before an interruption."""
        values_by_name: dict[str, list[float]] = {}
        path = self.folder / TRAINER_LOG
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            for name, value in json.loads(line).items():
                if "/" in name:
                    values_by_name.setdefault(name, []).append(value)
        return {name: statistics.fmean(values) for name, values in values_by_name.items()}

    def write(self, step: int, metrics: dict[str, float]) -> None:
        """Log a step, counted from 1, or after the last one the metrics of the whole training."""
        passed = time.monotonic() - self.began
        left = passed / max(1, step - self.done) * (self.total - step)
        facts: dict[str, float | str] = {"current_steps": step, "total_steps": self.total}
        facts |= {name: metrics[name] for name in ("loss", "lr") if name in metrics}
        facts |= {
            "epoch": round(step * self.epochs / self.total, 4),
            "percentage": round(100 * step / self.total, 2),
            "elapsed_time": str(timedelta(seconds=int(passed))),
            "remaining_time": str(timedelta(seconds=int(left))),
        }
        facts |= {name: value for name, value in sorted(metrics.items()) if "/" in name and math.isfinite(value)}
        with (self.folder / TRAINER_LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")
