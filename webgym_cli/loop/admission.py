"""Which groups of episodes an asynchronous loop begins, and which make a batch, so that staleness stays bounded.

Two rules; B is the size of a batch in episodes, s the version that is served, v the version that is trained next, n
`loop.max_staleness`, versions counted from the first asynchronous one:

1. A group begins while fewer than (s + 1 + n) * B episodes are used up, ready or open.
2. The batch of v takes each group whose oldest step is of version v - n, and waits for those of them that are open.

At most (v - n + 1 + n) * B = (v + 1) * B episodes begin at versions up to v - n, and the v batches before have used up
v * B of them: rule 2 never asks for more than a batch holds, and no group is left that would be too old for the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from webgym_cli.records.batch import BatchSelection
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.plan import PendingEpisode


@dataclass(slots=True)
class EpisodeGroup:
    """Planned episodes whose rewards are compared with one another."""

    id: str
    """Id of its first planned episode."""
    iteration: int
    """The window of the task stream that it is of."""
    episodes: tuple[str, ...]
    """Ids of its planned episodes."""
    greedy: frozenset[str]
    """Those of them that are its baseline."""
    pending: dict[str, PendingEpisode]
    """Those that have no final attempt yet."""
    trajectories: dict[str, Trajectory] = field(default_factory=dict)
    """The newest attempt of each episode that has one, without its steps."""
    unjudged: set[str] = field(default_factory=set)
    """Episodes whose trajectory waits for the judge."""
    oldest: int | None = None
    """The oldest policy version of its steps; None: it has not begun."""

    @property
    def closed(self) -> bool:
        """Whether nothing more will come of it."""
        return not self.pending and not self.unjudged

    @property
    def has_gradient(self) -> bool:
        """Whether its known rewards differ; one alone, and none at all, has nothing to be equal to."""
        known = [
            trajectory.outcome.reward
            for episode, trajectory in self.trajectories.items()
            if trajectory.outcome.failure is None and trajectory.outcome.reward is not None
            if episode not in self.greedy
        ]
        return len(known) < 2 or min(known) < max(known)

    def record(self, trajectory: Trajectory, *, judged: bool) -> None:
        """Take a stored attempt, also once more with its judgement. `judged`: whether a judge is asked."""
        before = self.trajectories.get(trajectory.episode)
        if before is not None and before.attempt > trajectory.attempt:
            return
        versions = [
            step.generation.policy_version.number for step in trajectory.steps if step.generation.policy_version
        ]
        self.begin(min(versions, default=self.oldest))
        self.trajectories[trajectory.episode] = trajectory.model_copy(update={"steps": ()})
        if judged and trajectory.awaits_judgement:
            self.unjudged.add(trajectory.episode)
        else:
            self.unjudged.discard(trajectory.episode)

    def begin(self, version: int | None) -> None:
        """Note that a step of it may be of a policy version."""
        if version is not None:
            self.oldest = version if self.oldest is None else min(self.oldest, version)


@dataclass(frozen=True, slots=True)
class ChosenGroups:
    """What a batch is made of."""

    groups: tuple[EpisodeGroup, ...]
    stale: tuple[EpisodeGroup, ...] = ()
    """Left out: too old."""
    equal: tuple[EpisodeGroup, ...] = ()
    """Left out: all rewards are equal (`rl.data.filter_groups`)."""

    def __iter__(self) -> Iterator[EpisodeGroup]:
        """Yield all groups that it uses up."""
        yield from (*self.groups, *self.stale, *self.equal)

    @property
    def iterations(self) -> tuple[int, ...]:
        """The windows that its groups are of."""
        return tuple(sorted({group.iteration for group in self}))

    def select(self, iterations: Sequence[int], as_of: dict[str, int]) -> BatchSelection:
        """Return what is prepared of it. `iterations`: those that are read; `as_of`: how far."""
        return BatchSelection(
            iterations=tuple(iterations),
            trajectories=_trajectories(tuple(self)),
            stale=_trajectories(self.stale),
            as_of=as_of,
            episodes=sum(len(group.episodes) for group in self.groups),
        )


@dataclass(slots=True)
class Admission:
    """The groups that have begun and are in no batch yet."""

    batch_size: int
    """Episodes."""
    max_staleness: int
    first: int
    """The policy version that the asynchronous trainings began with."""
    last: int
    """The policy version that the loop ends with."""
    served: int
    """The policy version that acts now."""
    used: int
    """Episodes of the batches so far, without those in whose place others came."""
    waits: bool = True
    """Whether a batch waits for groups that would be too old for the next one; else they are dropped."""
    filters: bool = False
    """Whether groups of equal rewards are left out."""
    max_batches: int = 1
    """Batches' worth of groups that are rolled out for one at most, where equal ones are left out."""
    groups: dict[str, EpisodeGroup] = field(default_factory=dict)
    """By id, in the order of the stream."""

    def may_begin(self) -> bool:
        """Whether another group may begin (rule 1)."""
        begun = self.used + sum(len(group.episodes) for group in self.groups.values() if self._counts(group))
        return begun < (min(self.served + 1 + self.max_staleness, self.last) - self.first) * self.batch_size

    def choose(self, parent: int) -> ChosenGroups | None:
        """Return what is trained on by a policy version next (rule 2); None: more has to be rolled out."""
        bound = parent - self.max_staleness
        closed = [group for group in self.groups.values() if group.closed]
        equal = tuple(group for group in closed if self._lacks_gradient(group))
        stale = tuple(group for group in closed if _age(group) < bound and group not in equal)
        ready = [group for group in closed if group not in equal and group not in stale]
        forced = [group for group in self.groups.values() if not self._lacks_gradient(group) and _age(group) == bound]
        if self.waits and not all(group.closed for group in forced):
            return None
        size, chosen = 0, []
        for group in sorted(ready, key=_age):  # a stable order: of equal ages the stream's
            if size >= self.batch_size and _age(group) > bound:
                break
            chosen.append(group)
            size += len(group.episodes)
        rolled_out = size + sum(len(group.episodes) for group in equal)
        exhausted = self.filters and chosen and rolled_out >= self.max_batches * self.batch_size
        if size < self.batch_size and not exhausted:
            return None
        return ChosenGroups(tuple(chosen), stale, equal)

    def use_up(self, chosen: ChosenGroups) -> None:
        """Take the groups of a batch out: its line is in the ledger."""
        for group in chosen:
            del self.groups[group.id]
        self.used += sum(len(group.episodes) for group in chosen.groups)

    def find(self, episode: str) -> EpisodeGroup | None:
        """Return the group of an episode, unless it is in a batch already."""
        return next((group for group in self.groups.values() if episode in group.episodes), None)

    def counts(self) -> dict[str, int]:
        """Return how many groups are `ready` and `open`."""
        ready = sum(group.closed for group in self.groups.values())
        return {"ready": ready, "open": len(self.groups) - ready}

    def _counts(self, group: EpisodeGroup) -> bool:
        """Whether a group takes a place of those that may begin: one that will be dropped does not."""
        return not self._lacks_gradient(group) and _age(group) >= self.served - self.max_staleness

    def _lacks_gradient(self, group: EpisodeGroup) -> bool:
        return self.filters and group.closed and not group.has_gradient


def _age(group: EpisodeGroup) -> int:
    """Return the version that a group began with: open ones have at least been handed out."""
    return 0 if group.oldest is None else group.oldest


def _trajectories(groups: tuple[EpisodeGroup, ...]) -> frozenset[str]:
    return frozenset(trajectory.id for group in groups for trajectory in group.trajectories.values())
