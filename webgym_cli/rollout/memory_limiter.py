"""Limits on concurrent episodes: their number by cores and memory, and admission by free memory."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from webgym_cli.config.rollout import RolloutSettings

# Episodes per core: they mostly wait for the policy and the network.
_PER_CORE = 8
# Memory in MiB of an episode on a live site, with its share of the browser.
_EPISODE_MB = 150
# Seconds after which an episode holds its memory.
_START_SECONDS = 10.0
# Seconds between two checks of free memory.
_LOOK_AGAIN = 1.0
# The control groups of this process and where they are mounted.
_OWN_GROUPS = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")
# By controllers (none in version 2): folder of the mount, limit, usage, and prefix of the statistics with subgroups.
_GROUP_FILES = {
    "": ("", "memory.max", "memory.current", ""),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
}


def default_concurrency(settings: RolloutSettings) -> int:
    """Return the number of concurrent episodes: `rollout.concurrency`, else derived from cores and free memory."""
    if settings.concurrency is not None:
        return settings.concurrency
    return max(1, min(_PER_CORE * len(os.sched_getaffinity(0)), free_mb() // _EPISODE_MB))


def free_mb() -> int:
    """Return the available memory in MiB (without swapping): the machine's, or less in a container or job."""
    return int(min([psutil.virtual_memory().available, *_left_in_groups()]) >> 20)


def _left_in_groups() -> Iterator[int]:
    """Yield what is left, in bytes, of each memory limit on this process's control groups."""
    lines = _OWN_GROUPS.read_text().splitlines() if _OWN_GROUPS.is_file() else []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in _GROUP_FILES:
            continue
        mount, limit, usage, prefix = _GROUP_FILES[controllers]
        top = _GROUPS / mount
        group = top / path.lstrip("/")
        # In a container the path may be the host's: its own group is then the top.
        for folder in {group, *group.parents} - set(top.parents):
            try:
                left = int((folder / limit).read_text()) - int((folder / usage).read_text())
                stats = dict(row.split() for row in (folder / "memory.stat").read_text().splitlines())
                # Pages of files are given back on demand.
                yield left + sum(int(stats[f"{prefix}{kind}_file"]) for kind in ("inactive", "active"))
            except (OSError, ValueError, KeyError):
                continue  # without a limit ("max"), or not mounted here


@dataclass(slots=True)
class MemoryLimiter:
    """Delays further episodes while free memory is below a reserve; one episode may always run."""

    reserve_mb: int
    """Free memory below which nothing starts, in MiB."""
    running: int = 0
    """Admitted episodes that have not ended."""
    _admitted: deque[float] = field(default_factory=deque)
    """Times of the last admissions: these episodes are still to take their memory."""

    async def enter(self) -> None:
        """Wait until memory allows one more episode."""
        # The kernel sends no event when memory becomes free: poll.
        while self.running and free_mb() - _EPISODE_MB * self._count_starting() < self.reserve_mb:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_AGAIN)
        self.running += 1
        self._admitted.append(time.monotonic())

    def _count_starting(self) -> int:
        while self._admitted and self._admitted[0] + _START_SECONDS < time.monotonic():
            self._admitted.popleft()
        return len(self._admitted)

    def leave(self) -> None:
        """Release an admitted episode's slot."""
        self.running -= 1
