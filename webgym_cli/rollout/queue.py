"""The queue of pending episodes that an engine's workers take from, and what concurrent rollouts of a process share."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from webgym_cli.agent.client.gate import PolicyGate
from webgym_cli.jobs.machine_time import MachineMeter
from webgym_cli.records.task import Split, Task
from webgym_cli.rollout.plan import PendingEpisode

# Names the resources that a task needs exclusively: two tasks that share a name never run at once.
ResourceNames = Callable[[Task], Collection[str]]


class ResourceClaims:
    """Exclusive resources held by the running episodes; can be shared by several queues."""

    def __init__(self, names: ResourceNames = lambda task: ()) -> None:
        self._names = names
        self._held: dict[str, Collection[str]] = {}
        """Held resource names by episode id."""
        self.changed = asyncio.Event()
        """Set whenever another episode may be handed out."""

    def claim(self, owed: PendingEpisode) -> bool:
        """Acquire the resources of an episode; return False and acquire none if another episode holds one."""
        wanted = self._names(owed.episode.task)
        if any(not set(names).isdisjoint(wanted) for names in self._held.values()):
            return False
        self._held[owed.episode.id] = wanted
        return True

    def release(self, owed: PendingEpisode) -> None:
        """Release the resources of an episode."""
        self._held.pop(owed.episode.id, None)
        self.changed.set()


class EpisodeQueue:
    """Hands out each pending episode to one worker, once its exclusive resources are free."""

    def __init__(self, owed: Iterable[PendingEpisode], claims: ResourceClaims | None = None) -> None:
        self._waiting = deque(owed)
        self._claims = claims or ResourceClaims()

    @property
    def changed(self) -> asyncio.Event:
        """Set whenever another episode may be handed out."""
        return self._claims.changed

    def put(self, owed: PendingEpisode) -> None:
        """Queue an episode at the end."""
        self._waiting.append(owed)

    async def take(self) -> PendingEpisode | None:
        """Return the next episode whose exclusive resources are free; None when no more will come."""
        while self._waiting:
            if owed := self.take_now():
                return owed
            # A worker that requeues an episode calls `take` again, so the last episode is never lost.
            self.changed.clear()
            await self.changed.wait()
        return None

    def take_now(self) -> PendingEpisode | None:
        """Return the next episode whose exclusive resources are free; None if there is none now."""
        for place, owed in enumerate(self._waiting):
            if self._claims.claim(owed):
                del self._waiting[place]
                return owed
        return None

    async def give_back(self, owed: PendingEpisode) -> None:
        """Requeue an episode at the end for another attempt."""
        self._waiting.append(owed)
        self._claims.release(owed)

    async def finish(self, owed: PendingEpisode) -> None:
        """Mark an episode as done, stored, skipped or given up: its exclusive resources are free."""
        self._claims.release(owed)

    def depth(self) -> int:
        """Return the number of waiting episodes."""
        return len(self._waiting)

    def end(self) -> None:
        """Stop handing out episodes; `take` returns None to waiting workers."""
        self._waiting.clear()
        self.changed.set()


@dataclass(slots=True)
class SlotPool:
    """Pool of episode slots; evaluation episodes have priority."""

    free: int
    """Number of free slots."""
    _waiting: dict[Split, deque[asyncio.Future[None]]] = field(
        default_factory=lambda: {Split.TEST: deque(), Split.TRAIN: deque()}
    )

    @asynccontextmanager
    async def slot(self, split: Split) -> AsyncIterator[None]:
        """Hold a slot for the duration of the block."""
        await self._take(split)
        try:
            yield
        finally:
            self._give_back()

    async def _take(self, split: Split) -> None:
        if self.free:
            self.free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting[split].append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back()  # the slot was handed over at the same moment
            raise

    def _give_back(self) -> None:
        for waiting in self._waiting.values():
            while waiting:
                turn = waiting.popleft()
                if not turn.done():
                    turn.set_result(None)
                    return
        self.free += 1


@dataclass(slots=True)
class SharedRollouts:
    """State shared by the training and evaluation rollouts of an asynchronous loop."""

    gate: PolicyGate
    """Gate of the training policy; holds requests while the weights change."""
    slots: SlotPool
    claims: ResourceClaims
    meter: MachineMeter = field(default_factory=MachineMeter)
    """One for all of them: they use the same processes and GPUs."""
