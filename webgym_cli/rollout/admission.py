"""How many episodes run at once, and when the next one may start: by cores and free memory."""

from __future__ import annotations

import os

import psutil

from webgym_cli.config.collect import RolloutSettings

_PER_CORE = 8
"""Episodes for a core: most of their time goes into waiting for the policy and the network."""
_EPISODE_MB = 150
"""What an episode on a live site takes, with its share of the browser."""


def slots(settings: RolloutSettings) -> int:
    """Return how many episodes run at once: as set, else what cores and free memory carry."""
    if settings.concurrency is not None:
        return settings.concurrency
    by_memory = free_mb() // _EPISODE_MB
    return max(1, min(_PER_CORE * len(os.sched_getaffinity(0)), by_memory))


def free_mb() -> int:
    """Return the memory in MiB that can be had without swapping."""
    return int(psutil.virtual_memory().available >> 20)
