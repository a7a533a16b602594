"""Which group each planned episode belongs to, as the plans of the iterations tell."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from webgym_cli.config.model import Settings
from webgym_cli.config.rl_data import GroupBy
from webgym_cli.records.episode import Episode
from webgym_cli.records.task import Split
from webgym_cli.store.index.query import Index
from webgym_cli.store.plans import read_plan
from webgym_cli.store.run import RunDir

_PLANNED = """
CREATE OR REPLACE TABLE rl_planned AS
SELECT unnest(?::VARCHAR[]) AS episode, unnest(?::VARCHAR[]) AS group_id, unnest(?::BIGINT[]) AS team,
    unnest(?::BOOLEAN[]) AS baseline, unnest(range(?)) AS turn
"""


@dataclass(slots=True)
class PlannedGroups:
    """The planned episodes, in the order of their plans: some 100 bytes each."""

    episodes: list[str] = field(default_factory=list)
    """Their ids."""
    group_ids: list[str] = field(default_factory=list)
    """The id of each one's group: that of its first planned episode."""
    groups: list[int] = field(default_factory=list)
    """The number of each one's group, counted from 0 by first appearance."""
    greedy: list[bool] = field(default_factory=list)
    """Whether each one was to be greedy."""


def resolve_group_by(settings: Settings) -> GroupBy:
    """Return which episodes are compared with one another."""
    return settings.rl.data.group_by or ("chain" if settings.agent.group_size > 1 else "task")


def read_planned_groups(run: RunDir, iterations: Sequence[int], by: GroupBy, size: int) -> PlannedGroups:
    """Read the plans and return the groups; an iteration without a plan has none. Raises `StoreError`.

    `size`: how many episodes of a task that was drawn are planned in a row.
    """
    planned, numbers = PlannedGroups(), dict[str, int]()
    for iteration in iterations:
        episodes = read_plan(run, Split.TRAIN, iteration)
        for episode, group_id in zip(episodes, name_groups(episodes, by, size), strict=True):
            planned.episodes.append(episode.id)
            planned.group_ids.append(group_id)
            planned.groups.append(numbers.setdefault(group_id, len(numbers)))
            planned.greedy.append(episode.greedy)
    return planned


def name_groups(episodes: Iterable[Episode], by: GroupBy, size: int) -> list[str]:
    """Return the id of each episode's group, that of the group's first one; all episodes are of one iteration."""
    first: dict[Hashable, str] = {}
    return [first.setdefault(_key(episode, by, size), episode.id) for episode in episodes]


def load_planned_groups(index: Index, planned: PlannedGroups) -> None:
    """Write the groups into the index's table `rl_planned`."""
    index.one(_PLANNED, [planned.episodes, planned.group_ids, planned.groups, planned.greedy, len(planned.episodes)])


def _key(episode: Episode, by: GroupBy, size: int) -> tuple[Hashable, ...]:
    """Return the key of an episode's group within its iteration."""
    # The planned task, because an environment may resolve it differently for each seed. Positions count in a stream,
    # of which there may be one a band: the task keeps those apart.
    if by == "chain":
        return (episode.task.key, episode.position // size)
    return (episode.task.key,) if by == "task" else (episode.task.key, episode.seed)
