"""CPU time and memory of this process with everything below it. Imports nothing of ours: the peers use it, too."""

from __future__ import annotations

import asyncio
import os
import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

_EVERY = 2.0
"""Seconds between two looks at the memory: a look takes some milliseconds of the CPU that is measured."""
_MEBIBYTE = 1 << 20


def by_kind(read: Callable[[psutil.Process], float]) -> dict[str, float]:
    """Return the sums of a figure over this process and its living descendants, by kind of process.

    The kinds: `python`, `driver` (Playwright's node) and `chromium`.
    """
    ours = psutil.Process(os.getpid())
    sums: defaultdict[str, float] = defaultdict(float)
    for process in (ours, *ours.children(recursive=True)):
        try:
            sums[_kind(process.name())] += read(process)
        except psutil.Error:  # it has just ended
            continue
    return dict(sums)


def cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU seconds (user and system) of a process and of the children that it saw end."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def pss_mb(process: psutil.Process) -> float:
    """Return a process' proportional set size in MiB: pages that several share are divided among them."""
    return float(process.memory_full_info().pss / _MEBIBYTE)


def _kind(name: str) -> str:
    # Node calls its main thread so, and with it the process.
    return "python" if name.startswith("python") else "driver" if name.startswith(("node", "Main")) else "chromium"


@dataclass(slots=True)
class Meter:
    """Measures the block that it is the context of."""

    cpu: dict[str, float] = field(default_factory=dict)
    """CPU seconds of the block by kind."""
    looks: list[dict[str, float]] = field(default_factory=list)
    """What was held at each look, in MiB, by kind."""
    _before: dict[str, float] = field(default_factory=dict)
    _watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Meter:
        """Start counting."""
        self._before = by_kind(cpu_seconds)
        self._watch = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop counting."""
        if self._watch is not None:
            self._watch.cancel()
        after = by_kind(cpu_seconds)
        self.cpu = {kind: seconds - self._before.get(kind, 0.0) for kind, seconds in after.items()}
        self._weigh()

    def figures(self, steps: int, seconds: float) -> dict[str, object]:
        """Return what every measuring program tells of its run: so many steps in so many seconds."""
        milliseconds = {kind: 1000 * spent / steps for kind, spent in self.cpu.items()}
        return {
            "steps": steps,
            "seconds": seconds,
            "cpu_ms_per_step": {**milliseconds, "total": sum(milliseconds.values())},
            "pss_mb": self._held(statistics.median_high),
            "peak_pss_mb": self._held(max),
        }

    def _held(self, of: Callable[[list[float]], float]) -> dict[str, float]:
        """Return the look whose total this picks, with its total."""
        totals = [sum(look.values()) for look in self.looks]
        total = of(totals)
        return {**self.looks[totals.index(total)], "total": total}

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            await asyncio.to_thread(self._weigh)

    def _weigh(self) -> None:
        self.looks.append(by_kind(pss_mb))
