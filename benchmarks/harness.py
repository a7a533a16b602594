"""What all benchmarks share: the machine, rows with medians and spreads, and programs that answer in JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from webgym_cli.errors import JobError, WebGymError

ROOT = Path(__file__).resolve().parent.parent
"""The repository."""
_LIMIT = 3600.0
"""Seconds that one program may take."""


@cache
def _fixed_facts() -> dict[str, Any]:
    return {
        "cpu": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def machine() -> dict[str, Any]:
    """Return what the figures were taken on, with how busy it is now (the load average of the last minute)."""
    return {**_fixed_facts(), "load_1m": round(os.getloadavg()[0], 1)}


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@dataclass(frozen=True, slots=True)
class Series:
    """The same figure from several repeats."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median."""
        return statistics.median(self.values)

    def to_json(self) -> list[float]:
        """Return the spread: the least and the largest."""
        return [rounded(min(self.values)), rounded(max(self.values))]


def rounded(number: float) -> float:
    """Return a number to four digits."""
    return float(f"{number:.4g}")


@dataclass(frozen=True, slots=True)
class Row:
    """One figure, beside the same figure of a baseline where there is one."""

    case: str
    metric: str
    values: Series
    baseline: str = ""
    """What it is compared with."""
    baseline_values: Series | None = None
    """In the same order: each was taken in the same repeat as the value of its place."""
    higher_is_better: bool = False
    target: float | None = None
    """The least ratio that is wanted; for a figure without baseline the value that is wanted."""
    inputs: dict[str, Any] = field(default_factory=dict)

    @property
    def ratios(self) -> Series | None:
        """The ratio of each repeat; above 1 ours is better."""
        if self.baseline_values is None:
            return None
        pairs = zip(self.values.values, self.baseline_values.values, strict=True)
        return Series(tuple(ours / theirs if self.higher_is_better else theirs / ours for ours, theirs in pairs))

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None:
            return None
        if self.ratios is not None:
            return self.ratios.median >= self.target
        return self.values.median >= self.target if self.higher_is_better else self.values.median <= self.target

    def to_json(self, benchmark: str, about: dict[str, Any]) -> dict[str, Any]:
        """Return the row as it is printed. `about`: the machine."""
        fields: dict[str, Any] = {
            "benchmark": benchmark,
            "case": self.case,
            "metric": self.metric,
            "value": rounded(self.values.median),
            "spread": self.values.to_json(),
            "repeats": len(self.values.values),
            "higher_is_better": self.higher_is_better,
        }
        if self.baseline_values is not None and self.ratios is not None:
            fields["baseline"] = self.baseline
            fields["baseline_value"] = rounded(self.baseline_values.median)
            fields["baseline_spread"] = self.baseline_values.to_json()
            fields["ratio"] = rounded(self.ratios.median)
            fields["ratio_spread"] = self.ratios.to_json()
        if self.target is not None:
            fields["target"], fields["met"] = self.target, self.met
        return {**fields, "inputs": self.inputs, "machine": about}


def emit(benchmark: str, rows: Sequence[Row]) -> None:
    """Print rows: JSON, one object a line, on stdout."""
    about = machine()
    for row in rows:
        print(json.dumps(row.to_json(benchmark, about)), flush=True)


def table(rows: Sequence[Row]) -> str:
    """Return rows as a table for people."""
    lines = [("case", "metric", "ours", "baseline", "", "ratio", "spread", "target")]
    for row in rows:
        theirs, ratios = row.baseline_values, row.ratios
        spread = ratios or row.values
        target = "" if row.target is None else f"{row.target:g} {'met' if row.met else 'MISSED'}"
        lines.append(
            (
                row.case,
                row.metric,
                f"{rounded(row.values.median):g}",
                f"{rounded(theirs.median):g}" if theirs else "",
                row.baseline,
                f"{rounded(ratios.median):g}" if ratios else "",
                "–".join(f"{end:g}" for end in spread.to_json()) if len(spread.values) > 1 else "",
                target,
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def say(text: str) -> None:
    """Print a line for people."""
    print(text, file=sys.stderr, flush=True)


def reported(benchmark: str, measured: Callable[[Path], list[Row]], folder: Path | None = None) -> int:
    """Measure in a temporary folder (in `folder`) and tell it all; return the exit status."""
    try:
        with tempfile.TemporaryDirectory(prefix=f"webgym-{benchmark}-", dir=folder) as place:
            rows = measured(Path(place))
        emit(benchmark, rows)
    except WebGymError as error:
        say(f"error: {error}" + (f"\n  next: {error.hint}" if error.hint else ""))
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    say(f"\n{table(rows)}\nload now: {machine()['load_1m']}")
    return 0


def program(
    module: str, job: dict[str, Any], python: str = sys.executable, *, limit: float | None = None, **environment: str
) -> dict[str, Any]:
    """Run one of our measuring programs on a job and return its answer. Raises `JobError` with its last words."""
    try:
        done = subprocess.run(
            [python, "-m", f"benchmarks.{module}"],
            input=json.dumps(job),
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, **environment},
            timeout=limit or _LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise JobError(f"benchmarks.{module} did not end in {limit or _LIMIT:.0f} s", hint="webgym doctor") from error
    if done.returncode:
        words = done.stderr.strip().splitlines() or ["it said nothing"]
        raise JobError(f"benchmarks.{module} failed: {words[-1]}", hint="webgym doctor", returncode=done.returncode)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
