"""A rank's side of the talk with the driver: what it has to tell, and the episodes that it is given."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from webgym_cli.records.episode import Episode
from webgym_cli.rollout.plan import PendingEpisode
from webgym_cli.rollout.ray.messages import Item, Orders, Report, Ticket


@dataclass(slots=True)
class Outbox:
    """What a rank has to tell, kept until it was heard."""

    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is something that the driver should hear soon."""
    status: dict[str, Any] | None = None
    """The newest snapshot that was not told yet."""
    _items: deque[Item] = field(default_factory=deque)
    _first: int = 0

    def put(self, item: Item) -> None:
        """Add an item."""
        self._items.append(item)
        self.news.set()

    def forget(self, heard: int) -> None:
        """Drop the items that arrived, the first `heard` of all."""
        while self._items and self._first < heard:
            self._items.popleft()
            self._first += 1

    def report(self, **facts: Any) -> Report:
        """Return all that was not heard yet, and the status once."""
        self.news.clear()
        status, self.status = self.status, None
        return Report(first=self._first, items=tuple(self._items), status=status, **facts)


class RankQueue:
    """The engine's queue: asks the driver for each episode, which has the book of all."""

    def __init__(self, episodes: dict[str, Episode], outbox: Outbox) -> None:
        """`episodes`: the plan's, by id."""
        self._episodes = episodes
        self._outbox = outbox
        self._ready: deque[PendingEpisode] = deque()
        self._takers: deque[asyncio.Future[PendingEpisode | None]] = deque()
        self._over = False
        self._depth = 0

    @property
    def wanting(self) -> int:
        """How many takers wait."""
        return sum(not taker.done() for taker in self._takers)

    async def take(self) -> PendingEpisode | None:
        """Return the next episode that the driver gives; None once it says that nothing more will come."""
        if self._ready:
            return self._ready.popleft()
        if self._over:
            return None
        taker: asyncio.Future[PendingEpisode | None] = asyncio.get_running_loop().create_future()
        self._takers.append(taker)
        self._outbox.news.set()
        return await taker

    async def give_back(self, owed: PendingEpisode) -> None:
        """Tell the driver that an episode is to be tried again, by whoever is free."""
        self._outbox.put(Item(kind="returned", ticket=Ticket.of(owed)))

    async def finish(self, owed: PendingEpisode) -> None:
        """Tell the driver that an episode needs nothing more."""
        self._outbox.put(Item(kind="finished", ticket=Ticket.of(owed)))

    def depth(self) -> int:
        """Return this rank's share of those that wait, as the driver told it."""
        return self._depth

    def end(self) -> None:
        """Nothing to do: the driver says when it is over."""

    def follow(self, orders: Orders) -> None:
        """Take in what the driver gives."""
        self._depth = orders.depth
        for ticket in orders.tickets:
            self._hand(ticket.owed(self._episodes))
        if orders.over:
            self._over = True
            while self._takers:
                self._answer(self._takers.popleft(), None)

    def _hand(self, owed: PendingEpisode) -> None:
        while self._takers:
            if self._answer(self._takers.popleft(), owed):
                return
        self._ready.append(owed)

    def _answer(self, taker: asyncio.Future[PendingEpisode | None], owed: PendingEpisode | None) -> bool:
        if taker.done():  # cancelled
            return False
        taker.set_result(owed)
        return True
