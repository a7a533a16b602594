"""Admission control of the asynchronous loop: selects groups to start and to train on, with bounded staleness.

B is the batch size in episodes, s the served version, v the parent version of the next training, n
`loop.max_staleness`:

1. A group may begin while fewer than (s + 1 + n - v) * B episodes are ready or open. If groups with equal rewards are
   replaced, fewer than `max_num_gen_batches` times as many are so with them.
2. The batch of v contains every group whose oldest step is of version v - n, and waits for the open ones.

No group is therefore too old for the next batch. When the last group of version v - n begins, with w as next parent, at
most (v + 1 - w) * B episodes and the rest of a group are ready or open. The batches of w to v - 1 use up B or more
each, or all that is ready: rule 2 needs no more than B and a group. A batch waits while it has fewer than B, and then
rule 1 lets further groups begin: neither waits for the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from webgym_cli.errors import WebGymError
from webgym_cli.records.batch import BatchSelection
from webgym_cli.records.failure import is_rolled_out
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.plan import PendingEpisode
from webgym_cli.util.optional import known_or


@dataclass(slots=True)
class EpisodeGroup:
    """Planned episodes that form one advantage group, with their progress."""

    id: str
    """Id of its first planned episode."""
    iteration: int
    """Window of the task stream that the group belongs to."""
    episodes: tuple[str, ...]
    """Ids of its planned episodes."""
    greedy: frozenset[str]
    """Ids of the greedy baseline episodes (ReMax)."""
    pending: dict[str, PendingEpisode]
    """Episodes without a final attempt, by id."""
    trajectories: dict[str, Trajectory] = field(default_factory=dict)
    """The attempt of each episode that counts, without its steps, by episode id."""
    unjudged: set[str] = field(default_factory=set)
    """Ids of episodes whose trajectory awaits its judgement."""
    oldest: int | None = None
    """Oldest policy version of its steps; None before the group begins."""

    @property
    def closed(self) -> bool:
        """Whether all episodes are final and judged."""
        return not self.pending and not self.unjudged

    @property
    def has_gradient(self) -> bool:
        """Whether the known rewards differ; true with fewer than two of them.

        Greedy baselines and failed episodes don't count.
        """
        known = [
            trajectory.outcome.reward
            for episode, trajectory in self.trajectories.items()
            if trajectory.outcome.failure is None and trajectory.outcome.reward is not None
            if episode not in self.greedy
        ]
        return len(known) < 2 or min(known) < max(known)

    def record(self, trajectory: Trajectory, *, judged: bool) -> None:
        """Record a stored attempt; called again when its judgement arrives. `judged`: whether a judge is configured."""
        before = self.trajectories.get(trajectory.episode)
        if before and before.attempt != trajectory.attempt and _rank(before) > _rank(trajectory):
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
        """Lower the group's oldest policy version to `version`."""
        if version is not None:
            self.oldest = version if self.oldest is None else min(self.oldest, version)


@dataclass(frozen=True, slots=True)
class ChosenGroups:
    """Groups selected for a batch, and the groups dropped with it."""

    groups: tuple[EpisodeGroup, ...]
    stale: tuple[EpisodeGroup, ...] = ()
    """Dropped: older than `loop.max_staleness` allows."""
    equal: tuple[EpisodeGroup, ...] = ()
    """Dropped: all rewards are equal (`rl.data.filter_groups`)."""

    def __iter__(self) -> Iterator[EpisodeGroup]:
        """Yield all groups that the batch consumes, dropped ones included."""
        yield from (*self.groups, *self.stale, *self.equal)

    @property
    def iterations(self) -> tuple[int, ...]:
        """Windows of its groups, sorted."""
        return tuple(sorted({group.iteration for group in self}))

    def select(self, iterations: Sequence[int], as_of: dict[str, int]) -> BatchSelection:
        """Return the selection to prepare. `iterations`: those to read; `as_of`: the end offsets to read up to."""
        return BatchSelection(
            iterations=tuple(iterations),
            trajectories=_trajectories(tuple(self)),
            stale=_trajectories(self.stale),
            as_of=as_of,
            episodes=sum(len(group.episodes) for group in self.groups),
        )


@dataclass(slots=True)
class Admission:
    """Admission state: groups that have begun and are not in a batch yet."""

    batch_size: int
    """Episodes per batch."""
    max_staleness: int
    parent: int
    """Parent version of the next training."""
    last: int
    """Final policy version of the loop."""
    served: int
    """Policy version that is currently served."""
    waits: bool = True
    """Whether a batch waits for open groups that would be too old for the next one; if false, they are dropped."""
    filters: bool = False
    """Whether groups with equal rewards are dropped."""
    max_batches: int = 1
    """Maximum number of batches rolled out to fill one, if groups with equal rewards are dropped."""
    groups: dict[str, EpisodeGroup] = field(default_factory=dict)
    """Groups by id, in stream order."""

    def may_begin(self) -> bool:
        """Whether another group may begin (rule 1)."""
        room = (min(self.served + 1 + self.max_staleness, self.last) - self.parent) * self.batch_size
        begun = sum(len(group.episodes) for group in self.groups.values() if self._counts(group))
        equal = sum(len(group.episodes) for group in self.groups.values() if self._lacks_gradient(group))
        return begun < room and (not equal or begun + equal < room * self.max_batches)

    def choose(self) -> ChosenGroups | None:
        """Return the next batch (rule 2), or None if more episodes are needed.

        Raises `WebGymError` if the limit of episodes is reached and no group has a gradient.
        """
        bound = self.parent - self.max_staleness
        closed = [group for group in self.groups.values() if group.closed]
        equal = tuple(group for group in closed if self._lacks_gradient(group))
        stale = tuple(group for group in closed if _age(group) < bound and group not in equal)
        ready = [group for group in closed if group not in equal and group not in stale]
        forced = [group for group in self.groups.values() if not self._lacks_gradient(group) and _age(group) == bound]
        if self.waits and not all(group.closed for group in forced):
            return None
        size, chosen = 0, []
        for group in sorted(ready, key=_age):  # stable sort: stream order within a version
            if size >= self.batch_size and _age(group) > bound:
                break
            chosen.append(group)
            size += len(group.episodes)
        rolled_out = size + sum(len(group.episodes) for group in equal)
        if size >= self.batch_size:
            return ChosenGroups(tuple(chosen), stale, equal)
        if not self.filters or rolled_out < self.max_batches * self.batch_size:
            return None
        if not chosen:
            raise WebGymError(
                f"all rewards are equal within each of {len(equal)} groups: there is no gradient to learn from",
                hint="start from demonstrations or easier tasks, or roll out more: "
                f"-s rl.data.filter_groups.max_num_gen_batches={2 * self.max_batches}",
            )
        return ChosenGroups(tuple(chosen), stale, equal)

    def use_up(self, chosen: ChosenGroups) -> None:
        """Remove the groups of a batch that is recorded in the ledger."""
        for group in chosen:
            del self.groups[group.id]
        self.parent += 1

    def find(self, episode: str) -> EpisodeGroup | None:
        """Return the group of an episode, or None if a batch has already consumed it."""
        return next((group for group in self.groups.values() if episode in group.episodes), None)

    def counts(self) -> dict[str, int]:
        """Return the number of `ready` and `open` groups."""
        ready = sum(group.closed for group in self.groups.values())
        return {"ready": ready, "open": len(self.groups) - ready}

    def _counts(self, group: EpisodeGroup) -> bool:
        """Whether a group counts towards rule 1; groups that will be dropped don't."""
        return not self._lacks_gradient(group) and _age(group) >= self.served - self.max_staleness

    def _lacks_gradient(self, group: EpisodeGroup) -> bool:
        return self.filters and group.closed and not group.has_gradient


def _rank(trajectory: Trajectory) -> tuple[bool, int]:
    """Return what decides which attempt of an episode counts: the last one that was rolled out, else the last one."""
    return is_rolled_out(trajectory.outcome.failure), trajectory.attempt


def _age(group: EpisodeGroup) -> int:
    """Return the oldest policy version of a group, 0 if it has none."""
    return known_or(group.oldest, 0)


def _trajectories(groups: tuple[EpisodeGroup, ...]) -> frozenset[str]:
    return frozenset(trajectory.id for group in groups for trajectory in group.trajectories.values())
