"""What is still to be run: one queue a rollout, which several engines may draw from."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from webgym_cli.rollout.plan import Owed


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


class LocalQueue:
    """A queue within this process."""

    def __init__(self, owed: Iterable[Owed]) -> None:
        self._waiting = deque(owed)

    async def take(self) -> Owed | None:
        """Return the next episode. Whoever gives one back takes again, so the last one is never lost."""
        return self._waiting.popleft() if self._waiting else None

    async def give_back(self, owed: Owed) -> None:
        """Put an episode at the end."""
        self._waiting.append(owed)

    async def finish(self, owed: Owed) -> None:
        """Nothing to note: what was taken is gone."""

    def depth(self) -> int:
        """Return how many wait."""
        return len(self._waiting)
