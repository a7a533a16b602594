"""Task stream of the asynchronous loop: groups of episodes, planned window by window and stored on disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from webgym_cli.config.model import Settings
from webgym_cli.config.rl_data import GroupBy
from webgym_cli.loop.admission import EpisodeGroup
from webgym_cli.loop.rollout_setup import plan_current_rollout
from webgym_cli.prepare.groups import name_groups
from webgym_cli.records.episode import Episode
from webgym_cli.records.task import Split
from webgym_cli.rollout.plan import RolloutPlan, write_plan
from webgym_cli.store.buffer import scan
from webgym_cli.store.plans import read_plan
from webgym_cli.store.run import RunDir


@dataclass(slots=True)
class EpisodeStream:
    """Plans successive windows of one batch size each and splits them into groups."""

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
