"""How many episodes run at once, and when the next one may start: by cores and free memory."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

import psutil

from webgym_cli.config.rollout import RolloutSettings

_PER_CORE = 8
"""Episodes for a core: most of their time goes into waiting for the policy and the network."""
_EPISODE_MB = 150
"""What an episode on a live site takes, with its share of the browser."""
_LOOK_AGAIN = 1.0
"""Seconds between two looks at the memory."""


def slots(settings: RolloutSettings) -> int:
    """Return how many episodes run at once: as set, else what cores and free memory carry."""
    if settings.concurrency is not None:
        return settings.concurrency
    return max(1, min(_PER_CORE * len(os.sched_getaffinity(0)), free_mb() // _EPISODE_MB))


def free_mb() -> int:
    """Return the memory in MiB that can be had without swapping."""
    return int(psutil.virtual_memory().available >> 20)


@dataclass(slots=True)
class Admission:
    """Holds back further episodes while memory is short; one may always run."""

    reserve_mb: int
    """Free memory below which nothing starts, in MiB."""
    running: int = 0
    """Episodes that were let in and have not left."""

    async def enter(self) -> None:
        """Wait until there is room for one more episode."""
        # Memory tells nobody when it becomes free.
        while self.running and free_mb() < self.reserve_mb:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_AGAIN)
        self.running += 1

    def leave(self) -> None:
        """Give the room back."""
        self.running -= 1
