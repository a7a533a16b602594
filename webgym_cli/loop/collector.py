"""The collecting half of an asynchronous loop: hands out episodes as admission allows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from webgym_cli.loop.admission import Admission, ChosenGroups, EpisodeGroup
from webgym_cli.loop.stream import EpisodeStream
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.plan import PendingEpisode, RolloutPlan
from webgym_cli.rollout.queue import LocalQueue


@dataclass(slots=True)
class Collector:
    """The queue of a rollout engine whose episodes come from the task stream, group by group."""

    stream: EpisodeStream
    admission: Admission
    queue: LocalQueue
    """Episodes of begun groups that nobody has taken."""
    on_opened: Callable[[RolloutPlan], Awaitable[None]]
    """Called with the plan of each window before its first episode."""
    on_closed: Callable[[int], None]
    """Called with each window once all its groups are closed."""
    wait_seconds: float = 0.0
    """Seconds that slots have waited because no group may begin, summed over them."""
    waiting: int = 0
    """Slots that wait now."""
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ended: bool = False

    def __post_init__(self) -> None:
        """Take up the groups that an earlier command began."""
        for group in self.stream.open_stored():
            self._begin(group)

    async def take(self) -> PendingEpisode | None:
        """Return the next episode; None once the collection has ended."""
        loop = asyncio.get_running_loop()
        while not self._ended:
            if owed := self._take_now():
                return owed
            if self.admission.may_begin():
                await self.open_window()
                continue
            began = loop.time()
            self.waiting += 1
            try:
                await self.changed()
            finally:
                self.waiting -= 1
                self.wait_seconds += loop.time() - began
        return None

    async def give_back(self, owed: PendingEpisode) -> None:
        """Requeue an episode for another attempt."""
        if group := self.admission.find(owed.episode.id):
            group.pending[owed.episode.id] = owed
        await self.queue.give_back(owed)
        self.notify()

    async def finish(self, owed: PendingEpisode) -> None:
        """Mark an episode as done: it is stored, skipped or given up."""
        await self.queue.finish(owed)
        if group := self.admission.find(owed.episode.id):
            group.pending.pop(owed.episode.id, None)
            self._close(group)
        self.notify()

    def depth(self) -> int:
        """Return the number of waiting episodes."""
        return self.queue.depth()

    def end(self) -> None:
        """Hand out no more episodes."""
        self._ended = True
        self.queue.end()
        self.notify()

    def record(self, trajectory: Trajectory) -> None:
        """Take a stored attempt, and the same once more with its judgement."""
        if group := self.admission.find(trajectory.episode):
            group.record(trajectory, judged=self.stream.judged)
            self._close(group)
        self.notify()

    def use_up(self, chosen: ChosenGroups) -> None:
        """Take the groups of a batch out: its line is in the ledger."""
        self.admission.use_up(chosen)
        self.notify()

    def set_served(self, version: int) -> None:
        """Note which policy version acts from now on."""
        self.admission.served = version
        self.notify()

    async def changed(self) -> None:
        """Wait until something has changed that may let a group begin, or a batch be made."""
        self.queue.changed.clear()
        await self.queue.changed.wait()

    def notify(self) -> None:
        """Wake those that wait for a change."""
        self.queue.changed.set()

    def _take_now(self) -> PendingEpisode | None:
        while (owed := self.queue.take_now()) is None and self.stream.has_next and self.admission.may_begin():
            group = self.stream.next_group()
            group.begin(self.admission.served)
            self._begin(group)
        return owed

    async def open_window(self) -> None:
        """Plan the next window, unless another call just did."""
        async with self._opening:
            if not self.stream.has_next:
                plan, groups = await asyncio.to_thread(self.stream.load_window)
                await self.on_opened(plan)
                self.stream.add_window(plan, groups)

    def _begin(self, group: EpisodeGroup) -> None:
        self.admission.groups[group.id] = group
        for owed in group.pending.values():
            self.queue.put(owed)

    def _close(self, group: EpisodeGroup) -> None:
        """Note that a group may be closed now."""
        if not group.closed:
            return
        if not group.trajectories:  # its sites were blocked meanwhile: a later command plans it again
            del self.admission.groups[group.id]
        beside = (other for other in self.admission.groups.values() if other.iteration == group.iteration)
        if not self.stream.has_open(group.iteration) and all(other.closed for other in beside):
            self.on_closed(group.iteration)
