"""The queue of pending episodes that an engine's workers take from."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from webgym_cli.records.task import Task
from webgym_cli.rollout.plan import PendingEpisode

# Names the resources that a task needs exclusively: two tasks that share a name never run at once.
Claims = Callable[[Task], Collection[str]]


class EpisodeQueue(Protocol):
    """Hands out pending episodes, each to one worker."""

    async def take(self) -> PendingEpisode | None:
        """Return the next episode; None when no more will come."""
        ...

    async def give_back(self, owed: PendingEpisode) -> None:
        """Requeue an episode at the end for another attempt."""
        ...

    async def finish(self, owed: PendingEpisode) -> None:
        """Mark an episode as done: it is stored, skipped or given up."""
        ...

    def depth(self) -> int:
        """Return the number of waiting episodes."""
        ...

    def end(self) -> None:
        """Hand out no more episodes; `take` returns None to workers that wait."""
        ...


class LocalQueue:
    """A queue within this process. An episode is passed over while another one has what it needs to itself."""

    def __init__(self, owed: Iterable[PendingEpisode], claims: Claims = lambda task: ()) -> None:
        self._waiting = deque(owed)
        self._claims = claims
        self._claimed: dict[str, Collection[str]] = {}
        """Exclusive resources of the running episodes, by episode id."""
        self._freed = asyncio.Event()

    def put(self, owed: PendingEpisode) -> None:
        """Queue an episode at the end."""
        self._waiting.append(owed)

    async def take(self) -> PendingEpisode | None:
        """Return the next episode whose exclusive resources are free."""
        while self._waiting:
            if owed := self.take_now():
                return owed
            # A worker that requeues an episode calls `take` again, so the last episode is never lost.
            self._freed.clear()
            await self._freed.wait()
        return None

    async def give_back(self, owed: PendingEpisode) -> None:
        """Requeue an episode at the end."""
        self._waiting.append(owed)
        self._release(owed)

    async def finish(self, owed: PendingEpisode) -> None:
        """Release the exclusive resources of an episode."""
        self._release(owed)

    def depth(self) -> int:
        """Return the number of waiting episodes."""
        return len(self._waiting)

    def end(self) -> None:
        """Hand out no more episodes; `take` returns None to workers that wait."""
        self._waiting.clear()
        self._freed.set()

    def take_now(self) -> PendingEpisode | None:
        """Return the next episode whose exclusive resources are free at this moment; None: there is none."""
        taken = {name for names in self._claimed.values() for name in names}
        for place, owed in enumerate(self._waiting):
            wanted = self._claims(owed.episode.task)
            if taken.isdisjoint(wanted):
                del self._waiting[place]
                self._claimed[owed.episode.id] = wanted
                return owed
        return None

    def _release(self, owed: PendingEpisode) -> None:
        self._claimed.pop(owed.episode.id, None)
        self._freed.set()
