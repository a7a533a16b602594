"""The schedulers that ours is compared with: barriers around the same engine, and nothing else that differs.

A barrier stands where a synchronous rollout waits: after the policy's answers, and after the browsers' steps. Our own
scheduler has none: the engine as it is shipped, with its own queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from webgym_cli.rollout.plan import PendingEpisode

NAIVE, REFILL, OURS = "naive", "refill", "ours"
DESCRIPTIONS = {
    NAIVE: "step and episode barrier: N episodes step together, N new ones begin when all have ended",
    REFILL: "step barrier with refill: N episodes step together, an episode that ends is replaced at once",
    OURS: "no barrier: the engine as shipped",
}


class StepBarrier:
    """Lets nobody go on before all members have arrived."""

    def __init__(self) -> None:
        self.members = 0
        """Episodes that take part."""
        self.turns = 0
        """How often all have gone on."""
        self._arrived = 0
        self._open = asyncio.Event()

    def join(self, count: int = 1) -> None:
        """Take in members; they arrive at the next turn."""
        self.members += count

    def leave(self) -> None:
        """Let a member go, which may be the one that all others wait for."""
        self.members -= 1
        self._turn()

    async def arrive(self) -> None:
        """Wait for all others."""
        self._arrived += 1
        gate = self._open
        self._turn()
        await gate.wait()

    def _turn(self) -> None:
        if self._arrived and self._arrived >= self.members:
            self._arrived = 0
            self.turns += 1
            self._open.set()
            self._open = asyncio.Event()


class BatchQueue:
    """Hands out batches: the next one when every episode of the last one has ended."""

    def __init__(self, owed: Iterable[PendingEpisode], size: int, barrier: StepBarrier) -> None:
        self._waiting = deque(owed)
        self._size = size
        self._barrier = barrier
        self._batch: deque[PendingEpisode] = deque()
        self._running = 0
        self._next = asyncio.Event()
        self._begin()

    async def take(self) -> PendingEpisode | None:
        """Return an episode of the batch, once there is one."""
        while not self._batch:
            if not self._waiting:
                return None
            await self._next.wait()
        return self._batch.popleft()

    async def give_back(self, owed: PendingEpisode) -> None:
        """Put an episode at the end: it takes part in a later batch."""
        self._waiting.append(owed)
        await self.finish(owed)

    async def finish(self, owed: PendingEpisode) -> None:
        """Note the end of an episode; the last one of its batch begins the next."""
        self._running -= 1
        self._barrier.leave()
        if not self._running:
            self._begin()

    def depth(self) -> int:
        """Return how many wait."""
        return len(self._waiting) + len(self._batch)

    def _begin(self) -> None:
        while self._waiting and len(self._batch) < self._size:
            self._batch.append(self._waiting.popleft())
        self._running = len(self._batch)
        self._barrier.join(self._running)
        self._next.set()
        self._next = asyncio.Event()


class RefillQueue:
    """Hands out an episode as soon as one has ended; the new one takes its place at the barrier."""

    def __init__(self, owed: Iterable[PendingEpisode], size: int, barrier: StepBarrier) -> None:
        self._waiting = deque(owed)
        self._barrier = barrier
        self._places = min(size, len(self._waiting))
        """Places at the barrier that are kept for episodes which are about to be taken."""
        barrier.join(self._places)

    async def take(self) -> PendingEpisode | None:
        """Return the next episode."""
        if not self._waiting:
            return None
        if self._places:
            self._places -= 1
        else:
            self._barrier.join()
        return self._waiting.popleft()

    async def give_back(self, owed: PendingEpisode) -> None:
        """Put an episode at the end."""
        self._waiting.append(owed)
        await self.finish(owed)

    async def finish(self, owed: PendingEpisode) -> None:
        """Keep the place of an episode that has ended for the next one, if there is one for it."""
        if len(self._waiting) > self._places:
            self._places += 1
        else:
            self._barrier.leave()

    def depth(self) -> int:
        """Return how many wait."""
        return len(self._waiting)


def arrange(
    scheduler: str, owed: Iterable[PendingEpisode], size: int
) -> tuple[BatchQueue | RefillQueue | None, StepBarrier | None]:
    """Return the queue and the barrier of a scheduler for `size` episodes at once; none of both for ours."""
    if scheduler == OURS:
        return None, None
    barrier = StepBarrier()
    queue = BatchQueue if scheduler == NAIVE else RefillQueue
    return queue(owed, size, barrier), barrier
