"""Training batch: the trajectories of one training, as a line of `batches.jsonl`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Annotated, Literal

from pydantic import Field

from webgym_cli.records.base import Moment, Record, StoredRecord

LoopMode = Literal["sync", "async"]
# Reason of a `DroppedGroup` that exceeds the staleness bound.
STALE = "stale"


class BatchSelection(Record):
    """Trajectories selected for a batch; the settings determine how they are used."""

    iterations: tuple[int, ...]
    trajectories: frozenset[str]
    """Ids."""
    stale: frozenset[str] = frozenset()
    """Those of them that are dropped because they exceed `loop.max_staleness`."""
    as_of: dict[str, int]
    """Size in bytes up to which each file of trajectories and judgements is read."""
    episodes: int
    """Planned episodes of the groups that count towards the batch size."""


class BatchGroup(Record):
    """Trajectories whose rewards are compared with one another (a GRPO group), or a single trajectory."""

    id: str
    """Id of the group's first planned episode; without a plan, the id of the trajectory's episode."""
    trajectories: tuple[str, ...]
    """Ids of the attempts that count."""


class DroppedGroup(BatchGroup):
    """A complete group, or a part of one, that is not trained on."""

    reason: str
    """A `MaskReason` or the name of a filter; `stale`: too old for `loop.max_staleness`."""
    # Older runs have batches with rewards of NaN in dropped groups.
    rewards: tuple[Annotated[float, Field(allow_inf_nan=True)] | None, ...] = ()
    """Rewards of its trajectories."""


class TrainingBatch(StoredRecord):
    """Batch of one training. If several lines have the same `parent`, the last one is valid."""

    parent: int = Field(ge=0)
    """The policy version that is trained."""
    policy: str
    """Its checkpoint's name, or the base model."""
    mode: LoopMode
    iterations: tuple[int, ...]
    """Iterations whose trajectories are read, oldest first; with `async` windows of the task stream."""
    groups: tuple[BatchGroup, ...]
    """Groups that are trained on for the first time; imitation also samples from older trajectories."""
    dropped: tuple[DroppedGroup, ...] = ()
    episodes: int
    """Planned episodes that count towards the batch size: all groups except replaced ones."""
    staleness: dict[int, int]
    """Number of sampled tokens of `groups` by staleness: the trainings between the policy that produced them and
    `parent`. Counts steps if the server returned no token ids."""
    as_of: dict[str, int]
    """Bytes of each file of trajectories and judgements that were read."""
    plan_digest: str
    """SHA-256 of everything that determines the prepared data."""
    config_digest: str
    """SHA-256 of the settings."""
    created_at: Moment

    @property
    def used_episodes(self) -> frozenset[str]:
        """Ids of the episodes consumed by the batch, trained on or dropped; each group's first one is among them."""
        groups = (*self.groups, *self.dropped)
        attempts = (name.partition(".")[0] for name in _trajectories(groups))
        return frozenset((*attempts, *(group.id for group in groups)))

    @property
    def selection(self) -> BatchSelection:
        """The selection from which the batch was made, to make it again."""
        stale = [group for group in self.dropped if group.reason == STALE]
        return BatchSelection(
            iterations=self.iterations,
            trajectories=_trajectories((*self.groups, *self.dropped)),
            stale=_trajectories(stale),
            as_of=self.as_of,
            episodes=self.episodes,
        )


def _trajectories(groups: Iterable[BatchGroup]) -> frozenset[str]:
    return frozenset(chain.from_iterable(group.trajectories for group in groups))
