"""Concurrent workers over a queue, the limit on consecutive failures, and tasks that end together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from webgym_cli.errors import WebGymError
from webgym_cli.util.user_code import find_first

T = TypeVar("T")

# A command aborts after max(this, concurrency) consecutive failures: the server is down, or the wrong one.
MAX_CONSECUTIVE_FAILURES = 8


async def run_workers(count: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `count` workers to completion. Raises the error of the first one that fails, as `task_group` does."""
    async with task_group() as group:
        for _ in range(count):
            group.create_task(work())


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group that raises the first `WebGymError` or `OSError` itself; the other tasks are cancelled."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except* (WebGymError, OSError) as errors:  # OSError: the reader of stdout is gone
        raise find_first(errors) from None


async def gather_or_cancel(*works: Awaitable[T]) -> list[T]:
    """Await everything concurrently; on the first error, cancel the others, wait for them and raise it."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancel_tasks(*tasks)


async def gather_to_end(*works: Awaitable[object]) -> None:
    """Await everything concurrently to completion, then raise the first error in argument order."""
    for result in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


@asynccontextmanager
async def race(*works: Awaitable[Any]) -> AsyncIterator[Sequence[asyncio.Future[Any]]]:
    """Start everything concurrently and yield the tasks when the first has ended; cancel the others after the block."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        yield tasks
    finally:
        await cancel_tasks(*tasks)


async def cancel_tasks(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class Failures:
    """Counter of consecutive failures."""

    workers: int
    """Number of concurrent workers."""
    owed: int
    """Total number of items."""
    in_a_row: int = 0

    @property
    def limit(self) -> int:
        """Consecutive failures that abort the command: max(8, workers), but at most the number of items."""
        return min(max(MAX_CONSECUTIVE_FAILURES, self.workers), self.owed)

    def record(self, problem: str, hint: str) -> None:
        """Count one result; `problem` is empty for a good one. Raises `WebGymError` at the limit."""
        if not problem:
            self.in_a_row = 0
            return
        self.in_a_row += 1
        if self.in_a_row >= self.limit:
            count = f"{self.limit} answers in a row" if self.limit > 1 else "the answer"
            raise WebGymError(f"{count} can't be used: {problem}", hint=hint)
