"""Limits on concurrent episodes: their number by cores and memory, and admission by free memory."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from dataclasses import dataclass, field

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


def default_concurrency(settings: RolloutSettings) -> int:
    """Return the number of concurrent episodes: `rollout.concurrency`, else derived from cores and free memory."""
    if settings.concurrency is not None:
        return settings.concurrency
    return max(1, min(_PER_CORE * len(os.sched_getaffinity(0)), free_mb() // _EPISODE_MB))


def free_mb() -> int:
    """Return the available memory in MiB (without swapping)."""
    return int(psutil.virtual_memory().available >> 20)


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
