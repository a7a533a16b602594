"""Collector of the asynchronous loop: hands out episodes of the admitted groups of the task stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from webgym_cli.config.model import Settings
from webgym_cli.config.rl_data import GroupBy
from webgym_cli.loop.admission import Admission, ChosenGroups, EpisodeGroup
from webgym_cli.loop.rollout_setup import plan_current_rollout
from webgym_cli.prepare.groups import name_groups
from webgym_cli.records.task import Episode, Split
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.plan import PendingEpisode, RolloutPlan, write_plan
from webgym_cli.rollout.queue import EpisodeQueue, ResourceClaims
from webgym_cli.store.buffer import read_plan, scan
from webgym_cli.store.run import RunDir


@dataclass(slots=True)
class EpisodeStream:
    """The task stream: plans successive windows of one batch size each, stores them and splits them into groups."""

    run: RunDir
    settings: Settings
    group_by: GroupBy
    judged: bool
    """Whether a judge is configured."""
    used: frozenset[str]
    """Ids of the episodes that earlier batches consumed, whatever groups they were in (`rl.data.group_by`)."""
    window: int
    """Index of the next window; equals the iteration of its plans and trajectories."""
    plans: dict[int, RolloutPlan] = field(default_factory=dict)
    """Plans of the open windows, by index."""
    waiting: deque[EpisodeGroup] = field(default_factory=deque)
    """Groups that have not begun, in order; if there is none, open a window."""

    def open_stored(self) -> list[EpisodeGroup]:
        """Reload the windows that an earlier command planned; return their started groups that are not used up."""
        while self.run.plan(Split.TRAIN, self.window).is_file():
            if self._list_unused(read_plan(self.run, Split.TRAIN, self.window)):
                self.add_window(*self.load_window())
            else:
                self.window += 1
        begun = [group for group in self.waiting if group.trajectories]
        self.waiting = deque(group for group in self.waiting if not group.trajectories)
        return begun

    def _list_unused(self, episodes: Sequence[Episode]) -> dict[str, list[Episode]]:
        """Return the episodes of each group of which no batch consumed any, by group id."""
        members: dict[str, list[Episode]] = {}
        names = name_groups(episodes, self.group_by, self.settings.agent.group_size)
        for episode, name in zip(episodes, names, strict=True):
            members.setdefault(name, []).append(episode)
        return {name: of_one for name, of_one in members.items() if self.used.isdisjoint(one.id for one in of_one)}

    def load_window(self) -> tuple[RolloutPlan, list[EpisodeGroup]]:
        """Plan the next window; return its plan and its groups. Raises the errors of `plan_current_rollout`."""
        plan = plan_current_rollout(
            self.run, self.settings, Split.TRAIN, self.settings.rollout.policy, iteration=self.window
        )
        write_plan(self.run, plan)
        groups = list(self._take_apart(plan))
        by_episode = {episode: group for group in groups for episode in group.episodes}
        for trajectory in scan(self.run, Split.TRAIN, self.window):
            if group := by_episode.get(trajectory.episode):
                group.record(trajectory, judged=self.judged)
                if self.judged and trajectory.id in plan.unjudged:  # also one whose judge had failed: it is asked again
                    group.unjudged.add(trajectory.episode)
        # A group with no pending and no stored episode has only blocked sites; a later command plans it again.
        return plan, [group for group in groups if group.pending or group.trajectories]

    def add_window(self, plan: RolloutPlan, groups: Sequence[EpisodeGroup]) -> None:
        """Append the groups of the loaded window and advance to the next one."""
        self.plans[self.window] = plan
        self.waiting.extend(groups)
        self.window += 1

    def _take_apart(self, plan: RolloutPlan) -> Iterator[EpisodeGroup]:
        """Yield the unused groups of a window in the order of their first planned episode."""
        pending = {owed.episode.id: owed for owed in plan.owed}
        for name, episodes in self._list_unused(plan.episodes).items():
            yield EpisodeGroup(
                id=name,
                iteration=plan.iteration,
                episodes=tuple(episode.id for episode in episodes),
                greedy=frozenset(episode.id for episode in episodes if episode.greedy),
                pending={episode.id: pending[episode.id] for episode in episodes if episode.id in pending},
            )


class Collector(EpisodeQueue):
    """Episode queue of a rollout engine, filled from the task stream group by group.

    It holds the episodes of started groups that no worker has taken.
    """

    def __init__(
        self,
        stream: EpisodeStream,
        admission: Admission,
        claims: ResourceClaims,
        on_opened: Callable[[RolloutPlan], Awaitable[None]],
        on_closed: Callable[[int], None],
    ) -> None:
        """Requeue the groups that an earlier command started.

        `on_opened`: called with the plan of each window before its first episode. `on_closed`: called with each window
        once all its groups are closed.
        """
        super().__init__((), claims)
        self.stream = stream
        self.admission = admission
        self.wait_seconds = 0.0
        """Seconds that slots waited because no group was admitted, summed over slots."""
        self.waiting = 0
        """Number of slots that currently wait."""
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._opening = asyncio.Lock()
        self._ended = False
        for group in stream.open_stored():
            self._begin(group)

    async def take(self) -> PendingEpisode | None:
        """Return the next episode; None once the collection has ended."""
        loop = asyncio.get_running_loop()
        while not self._ended:
            if owed := self.take_now():
                return owed
            if self.admission.may_begin():
                await self.open_window()
                continue
            began = loop.time()
            self.waiting += 1
            try:
                await self.wait_change()
            finally:
                self.waiting -= 1
                self.wait_seconds += loop.time() - began
        return None

    async def give_back(self, owed: PendingEpisode) -> None:
        """Requeue an episode for another attempt."""
        if group := self.admission.find(owed.episode.id):
            group.pending[owed.episode.id] = owed
        await super().give_back(owed)

    async def finish(self, owed: PendingEpisode) -> None:
        """Mark an episode as done: it is stored, skipped or given up."""
        await super().finish(owed)
        if group := self.admission.find(owed.episode.id):
            group.pending.pop(owed.episode.id, None)
            self._close(group)
        self.changed.set()

    def end(self) -> None:
        """Stop handing out episodes."""
        self._ended = True
        super().end()

    def record(self, trajectory: Trajectory) -> None:
        """Record a stored attempt; called again when its judgement arrives."""
        if group := self.admission.find(trajectory.episode):
            group.record(trajectory, judged=self.stream.judged)
            self._close(group)
        self.changed.set()

    def use_up(self, chosen: ChosenGroups) -> None:
        """Remove the groups of a batch that is recorded in the ledger."""
        self.admission.use_up(chosen)
        self.changed.set()

    def set_served(self, version: int) -> None:
        """Set the policy version that is served from now on."""
        self.admission.served = version
        self.changed.set()

    async def wait_change(self) -> None:
        """Wait for a change after which a group may begin or a batch may be complete."""
        self.changed.clear()
        await self.changed.wait()

    def take_now(self) -> PendingEpisode | None:
        """Return the next episode, starting admitted groups as needed; None if none is available now."""
        while (owed := super().take_now()) is None and self.stream.waiting and self.admission.may_begin():
            group = self.stream.waiting.popleft()
            group.begin(self.admission.served)
            self._begin(group)
        return owed

    async def open_window(self) -> None:
        """Plan the next window, unless a concurrent call has already done so."""
        async with self._opening:
            if not self.stream.waiting:
                plan, groups = await asyncio.to_thread(self.stream.load_window)
                await self._on_opened(plan)
                self.stream.add_window(plan, groups)

    def _begin(self, group: EpisodeGroup) -> None:
        self.admission.groups[group.id] = group
        for owed in group.pending.values():
            self.put(owed)

    def _close(self, group: EpisodeGroup) -> None:
        """Close the group if all its episodes are final and judged, and its window if that was the last open group."""
        if not group.closed:
            return
        if not group.trajectories:  # its sites were blocked in the meantime; a later command plans it again
            del self.admission.groups[group.id]
        unclosed = (other for other in self.admission.groups.values() if not other.closed)
        if all(other.iteration != group.iteration for other in (*self.stream.waiting, *unclosed)):
            self._on_closed(group.iteration)
