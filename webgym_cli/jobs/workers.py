"""Concurrent workers over a queue, and the limit on consecutive failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from webgym_cli.errors import WebGymError

# A command aborts after max(this, concurrency) consecutive failures: the server is down, or the wrong one.
MAX_CONSECUTIVE_FAILURES = 8


async def run_workers(count: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `count` workers to completion. Raises the first `WebGymError` or `OSError` among them."""
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(work())
    except* (WebGymError, OSError) as errors:  # OSError: the reader of stdout is gone
        raise errors.exceptions[0] from None


@dataclass(slots=True)
class Failures:
    """Counter of consecutive failures."""

    workers: int
    """Number of concurrent workers."""
    owed: int
    """Number of items in all."""
    in_a_row: int = 0

    @property
    def limit(self) -> int:
        """Consecutive failures that abort the command: max(8, workers), or all items where there are fewer."""
        return min(max(MAX_CONSECUTIVE_FAILURES, self.workers), self.owed)

    def record(self, problem: str, hint: str) -> None:
        """Count one result; `problem` is empty for a good one. Raises `WebGymError` at the limit."""
        self.in_a_row = self.in_a_row + 1 if problem else 0
        if self.in_a_row >= self.limit:
            count = f"{self.limit} answers in a row" if self.limit > 1 else "the answer"
            raise WebGymError(f"{count} can't be used: {problem}", hint=hint)
