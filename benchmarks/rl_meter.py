"""Seconds and memory of optimizer steps, and the gradient of the first. Runs in the train role's interpreter."""

from __future__ import annotations

import ctypes
import math
import statistics
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

_PROCESS = Path("/proc/self")
_MB = 2**20


class Meter:
    """Measures the steps of one process. The first is not counted: in it the optimizer makes its moments."""

    def __init__(self, steps: int) -> None:
        """`steps` are counted."""
        self.steps = steps
        self._seconds: list[float] = []
        self._began = self._apart = self._loaded = self._held = 0.0

    @property
    def first(self) -> bool:
        """Whether no step has ended yet."""
        return not self._seconds

    @property
    def enough(self) -> bool:
        """Whether all steps are made."""
        return len(self._seconds) > self.steps

    def begin(self) -> None:
        """A step begins."""
        _synchronize()
        if self.first:
            self._loaded = _resident_mb()
        elif len(self._seconds) == 1:
            self._held = _resident_mb()
            _forget_peak()
        self._apart, self._began = 0.0, time.perf_counter()

    def leave_out(self, seconds: float) -> None:
        """Don't count seconds of the step that runs: they went into something else."""
        self._apart += seconds

    def end(self) -> None:
        """A step has ended."""
        _synchronize()
        self._seconds.append(time.perf_counter() - self._began - self._apart)

    def report(self, *packages: str) -> dict[str, Any]:
        """Return what the steps took: their median; and the fullest moment above what was held before them, in MB.

        `loaded_mb`: the process with its libraries and the model. `held_mb`: with the optimizer's moments, too. On a
        GPU all three are its memory. `versions`: of torch, transformers and the packages that are named.
        """
        return {
            "seconds": statistics.median(self._seconds[1:]),
            "peak_mb": _peak_mb() - self._held,
            "loaded_mb": self._loaded,
            "held_mb": self._held,
            "versions": {name: version(name) for name in ("torch", "transformers", *packages)},
        }


def write_gradient(network: Any, path: Path) -> None:
    """Write the gradient of a model into a file."""
    by_name = {name: value.grad.contiguous() for name, value in network.named_parameters() if value.grad is not None}
    save_file(by_name, path)


def likeness(path: Path, other: Path) -> dict[str, float]:
    """Return the cosine between two gradients and the first's length over the other's."""
    one, two = load_file(path), load_file(other)
    if one.keys() != two.keys():
        raise ValueError(f"gradients of other weights: {sorted(one.keys() ^ two.keys())[:3]}")
    dot = sum(float((value.double() * two[name].double()).sum()) for name, value in one.items())
    lengths = [math.sqrt(sum(float(value.double().square().sum()) for value in item.values())) for item in (one, two)]
    return {"cosine": dot / (lengths[0] * lengths[1]), "length_ratio": lengths[0] / lengths[1]}


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _resident_mb() -> float:
    if torch.cuda.is_available():
        return float(torch.cuda.memory_allocated() / _MB)
    # freed memory that the allocator keeps would hide what the next step needs
    ctypes.CDLL(None).malloc_trim(0)
    return _status_mb("VmRSS")


def _peak_mb() -> float:
    if torch.cuda.is_available():
        return float(torch.cuda.max_memory_allocated() / _MB)
    return _status_mb("VmHWM")


def _forget_peak() -> None:
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    else:
        (_PROCESS / "clear_refs").write_text("5")  # the peak of resident memory, see proc(5)


def _status_mb(name: str) -> float:
    lines = (_PROCESS / "status").read_text(encoding="utf-8").splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith(f"{name}:"))
    return int(kilobytes) / 1024
