"""Groups of planned episodes, from the plans of the iterations."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

from webgym_cli.config.model import Settings
from webgym_cli.config.rl_data import GroupBy
from webgym_cli.records.task import Episode, Split
from webgym_cli.store.buffer import read_plan
from webgym_cli.store.run import RunDir

if TYPE_CHECKING:
    from webgym_cli.store.index.query import Index

_PLANNED = """
CREATE OR REPLACE TABLE rl_planned AS
SELECT unnest(?::VARCHAR[]) AS episode, unnest(?::VARCHAR[]) AS group_id, unnest(?::BIGINT[]) AS team,
    unnest(?::BOOLEAN[]) AS baseline, unnest(range(?)) AS turn
"""


def resolve_group_by(settings: Settings) -> GroupBy:
    """Return how episodes are grouped."""
    return settings.rl.data.group_by or ("chain" if settings.agent.group_size > 1 else "task")


def load_planned_groups(index: Index, run: RunDir, iterations: Sequence[int], by: GroupBy, size: int) -> None:
    """Write the group of each planned episode into the index's table `rl_planned`.

    Iterations without a plan have none. `size`: number of consecutive episodes of a sampled task. Raises `StoreError`.
    """
    ids, names, teams, greedy = list[str](), list[str](), list[int](), list[bool]()
    numbers: dict[str, int] = {}
    for iteration in iterations:
        episodes = read_plan(run, Split.TRAIN, iteration)
        episodes += read_plan(run, Split.TRAIN, iteration, of_sessions=True)
        ids += (episode.id for episode in episodes)
        names += name_groups(episodes, by, size)
        teams += (numbers.setdefault(name, len(numbers)) for name in names[len(teams) :])
        greedy += (episode.greedy for episode in episodes)
    index.one(_PLANNED, [ids, names, teams, greedy, len(ids)])


def name_groups(episodes: Iterable[Episode], by: GroupBy, size: int) -> list[str]:
    """Return the group id of each episode (the id of the group's first one); all must be of one iteration."""
    first: dict[Hashable, str] = {}
    return [first.setdefault(_key(episode, by, size), episode.id) for episode in episodes]


def _key(episode: Episode, by: GroupBy, size: int) -> tuple[Hashable, ...]:
    # The planned task, because an environment may resolve it differently for each seed. Positions count within a
    # stream, and bands may have a stream each, so the task is part of the key.
    if by == "chain":
        return (episode.task.key, episode.position // size)
    return (episode.task.key,) if by == "task" else (episode.task.key, episode.seed)
