"""What is still to be run: one queue a rollout, which several engines may draw from."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from webgym_cli.records.task import Task
from webgym_cli.rollout.plan import Owed

Claims = Callable[[Task], Collection[str]]
"""Names what a task needs to itself: of two tasks that name the same, one waits until the other is done."""


class EpisodeQueue(Protocol):
    """Hands out owed episodes, each to one taker."""

    async def take(self) -> Owed | None:
        """Return the next episode; None when there is none left for this taker."""
        ...

    async def give_back(self, owed: Owed) -> None:
        """Put an episode at the end: it is to be tried again."""
        ...

    async def finish(self, owed: Owed) -> None:
        """Note that an episode needs nothing more: it is stored, skipped or given up."""
        ...

    def depth(self) -> int:
        """Return how many wait, as far as is known here."""
        ...

    def end(self) -> None:
        """Hand out nothing more, and send those home who wait."""
        ...


class LocalQueue:
    """A queue within this process. An episode is passed over while another one has what it needs to itself."""

    def __init__(self, owed: Iterable[Owed], claims: Claims = lambda task: ()) -> None:
        self._waiting = deque(owed)
        self._claims = claims
        self._claimed: dict[str, Collection[str]] = {}
        """What the running episodes have to themselves, by id."""
        self._freed = asyncio.Event()

    async def take(self) -> Owed | None:
        """Return the next episode that can run. Whoever gives one back takes again, so the last one is never lost."""
        while self._waiting:
            if owed := self._next():
                return owed
            self._freed.clear()
            await self._freed.wait()
        return None

    async def give_back(self, owed: Owed) -> None:
        """Put an episode at the end."""
        self._waiting.append(owed)
        self._free(owed)

    async def finish(self, owed: Owed) -> None:
        """Note that what the episode had to itself is free."""
        self._free(owed)

    def depth(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    def end(self) -> None:
        """Hand out nothing more, and send those home who wait."""
        self._waiting.clear()
        self._freed.set()

    def _next(self) -> Owed | None:
        taken = {name for names in self._claimed.values() for name in names}
        for place, owed in enumerate(self._waiting):
            wanted = self._claims(owed.episode.task)
            if taken.isdisjoint(wanted):
                del self._waiting[place]
                self._claimed[owed.episode.id] = wanted
                return owed
        return None

    def _free(self, owed: Owed) -> None:
        self._claimed.pop(owed.episode.id, None)
        self._freed.set()
