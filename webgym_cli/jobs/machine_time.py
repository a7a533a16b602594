"""Processor and GPU time that work takes, by laps: each counts what has passed since the one before."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

from webgym_cli.jobs.guard import children_by_parent, descendants, read_stat

# User and system time of a process and of its ended children, among the fields of /proc/PID/stat from the state on.
_TIMES = slice(11, 15)
# A meter measures for at most one part in so many of its time; what is left out is in the next lap.
_PAUSE = 50


def measure_cpu(root: int | None = None) -> float:
    """Return the seconds of processor time of a process and its descendants so far; None: of this one.

    A descendant that leaves without its parent waiting for it takes its time along.
    """
    root = root or os.getpid()
    try:
        family = [root, *descendants(root, children_by_parent(zombies=True))]
    except OSError:  # without /proc what still runs below this process is not counted
        return sum(os.times()[:4])
    return sum(sum(map(int, read_stat(pid, zombies=True)[_TIMES])) for pid in family) / os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class MachineMeter:
    """Meter of the work that runs side by side in this process: an episode gets what passed since the last one ended.

    The times of single episodes are thus rough. Their sum is a lower bound: it lacks what came after the last lap, and
    what a process that left without being waited for took along.
    """

    gpus: int = 0
    """Number of GPUs that serve the work."""
    _cpu: float = field(default_factory=measure_cpu)
    _clock: float = field(default_factory=time.monotonic)
    _took: float = 0.0
    """Seconds of the last measurement."""

    @property
    def seconds(self) -> float:
        """Seconds on the wall since the last lap."""
        return time.monotonic() - self._clock

    def take_lap(self) -> dict[str, float]:
        """Return `cpu_seconds` and `gpu_seconds` since the last call, or since the start."""
        clock = time.monotonic()
        if clock - self._clock < _PAUSE * self._took:  # thousands of processes take tens of milliseconds
            return {"cpu_seconds": 0.0, "gpu_seconds": 0.0}
        cpu = measure_cpu()
        if cpu < self._cpu:  # a child that ended between the reading of its parent and its own is in the next one
            cpu = measure_cpu()
        self._took = time.monotonic() - clock
        lap = {"cpu_seconds": max(0.0, cpu - self._cpu), "gpu_seconds": self.gpus * (clock - self._clock)}
        self._cpu, self._clock = cpu, clock
        return {name: round(seconds, 3) for name, seconds in lap.items()}
