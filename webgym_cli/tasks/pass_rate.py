"""Draws tasks by how the policy did on them last: pools of hard, normal and easy tasks, and of unseen ones."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, get_args

from webgym_cli.config.tasks import TaskPool
from webgym_cli.tasks.draw import DrawnTask, SeedStream, TaskSampler
from webgym_cli.tasks.source import TaskSet

# In the order of their codes.
POOLS: tuple[TaskPool, ...] = get_args(TaskPool)


@dataclass(frozen=True, slots=True)
class PassRateSampler(TaskSampler):
    """Draws from pools in fixed shares.

    The pool that lacks most of its share gives the next group, from its tasks in random order. No task comes again
    before all others came: a pool without further tasks leaves its share to the others.
    """

    # Rewards may be judged anew: later the same plan would be drawn otherwise.
    repeatable: ClassVar[bool] = False

    pools: bytes = b""
    """Code of each task's pool, by index."""
    shares: Mapping[TaskPool, float] = field(default_factory=dict)

    def stream(self, which: SeedStream) -> Iterator[DrawnTask]:
        """Yield the elements of the one stream, endlessly."""
        generator, drawn, position = random.Random(self.name), dict.fromkeys(POOLS, 0), 0
        weights = {pool: self.shares.get(pool, 0.0) for pool in POOLS}
        while self.pools:
            left = self._shuffle(generator)
            while left:
                # tasks of pools without a share come last
                groups = sum(drawn.values()) + 1
                pool = max(left, key=lambda pool: (weights[pool] > 0, weights[pool] * groups - drawn[pool]))
                index = left[pool].pop()
                if not left[pool]:
                    del left[pool]
                drawn[pool] += 1
                yield from self._group(index, position, generator)
                position += self.group_size

    def _shuffle(self, generator: random.Random) -> dict[TaskPool, list[int]]:
        """Return the tasks of each pool that has any, in random order."""
        indices: dict[TaskPool, list[int]] = {}
        for index, code in enumerate(self.pools):
            indices.setdefault(POOLS[code], []).append(index)
        for pool in sorted(indices):
            generator.shuffle(indices[pool])
        return indices


def assign_pools(tasks: TaskSet, rates: Mapping[int, float], bounds: tuple[float, float]) -> bytes:
    """Return the code of each task's pool. `rates`: the newest pass rate of each seen task, by `hash_text` of its id.

    Up to the first bound a task is hard, from the second on easy.
    """

    def pool_of(index: int) -> TaskPool:
        rate = rates.get(tasks.id_hash(index))
        if rate is None:
            return "unseen"
        return "hard" if rate <= bounds[0] else "easy" if rate >= bounds[1] else "normal"

    return bytes(POOLS.index(pool_of(index)) for index in range(len(tasks)))
