"""What one training is made of: a line of `batches.jsonl`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from webgym_cli.records.base import Moment, Record, StoredRecord

LoopMode = Literal["sync", "async"]
# The reason of a `DroppedGroup` that is too old.
STALE = "stale"


class BatchSelection(Record):
    """Which trajectories a batch is to be made of; what is made of them follows from the settings."""

    iterations: tuple[int, ...]
    trajectories: frozenset[str]
    """Ids."""
    stale: frozenset[str] = frozenset()
    """Those of them that are left out: too old for `loop.max_staleness`."""
    as_of: dict[str, int]
    """Bytes of each file of trajectories and judgements that count."""
    episodes: int
    """Planned episodes of the groups that count for the size of the batch."""


class BatchGroup(Record):
    """Trajectories whose rewards are compared with one another, or a single one."""

    id: str
    """Id of the group's first planned episode; without a plan, the id of the trajectory's episode."""
    trajectories: tuple[str, ...]
    """Ids of the attempts that count."""


class DroppedGroup(BatchGroup):
    """A group, or a part of one, that was ready and is not trained on."""

    reason: str
    """A `MaskReason` or the name of a filter; `stale`: too old for `loop.max_staleness`."""
    rewards: tuple[float | None, ...] = ()
    """Rewards of its trajectories."""


class TrainingBatch(StoredRecord):
    """What one training is made of; of several lines with one `parent` the last one counts."""

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
    def group_ids(self) -> frozenset[str]:
        """Ids of the groups that it used up, trained on or dropped."""
        return frozenset(group.id for group in (*self.groups, *self.dropped))

    @property
    def selection(self) -> BatchSelection:
        """What it was made of, for making it again."""
        stale = [group for group in self.dropped if group.reason == STALE]
        return BatchSelection(
            iterations=self.iterations,
            trajectories=_trajectories((*self.groups, *self.dropped)),
            stale=_trajectories(stale),
            as_of=self.as_of,
            episodes=self.episodes,
        )

    def same_content(self, other: TrainingBatch | None) -> bool:
        """Whether another line would lead to the same training."""
        kept = {"created_at", "config_digest"}
        return other is not None and self.model_dump(exclude=kept) == other.model_dump(exclude=kept)


def _trajectories(groups: Iterable[BatchGroup]) -> frozenset[str]:
    return frozenset(name for group in groups for name in group.trajectories)
