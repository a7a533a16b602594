"""Task sampling by the policy's latest pass rate: pools of hard, normal, easy and unseen tasks."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, get_args

from webgym_cli.config.tasks import TaskPool
from webgym_cli.tasks.draw import DrawnTask, SeedStream, TaskSampler
from webgym_cli.tasks.source import TaskSet

# Up to the first pass rate a task is hard, from the second on easy.
_HARD, _EASY = 0.2, 0.8
# Ordered by code.
POOLS: tuple[TaskPool, ...] = get_args(TaskPool)


@dataclass(frozen=True, slots=True)
class PassRateSampler(TaskSampler):
    """Samples from pools with fixed shares.

    The pool furthest below its share provides the next group, from its tasks in random order. No task repeats before
    all others were drawn; the share of an exhausted pool goes to the other pools.
    """

    # Rewards may be judged again, so the same plan may not be reproducible later.
    repeatable: ClassVar[bool] = False

    pools: bytes = b""
    """Pool code of each task, by index."""
    shares: Mapping[TaskPool, float] = field(default_factory=dict)

    def stream(self, which: SeedStream) -> Iterator[DrawnTask]:
        """Yield the elements of the single stream, endlessly."""
        generator, drawn, position = random.Random(self.name), dict.fromkeys(POOLS, 0), 0
        weights = {pool: self.shares.get(pool, 0.0) for pool in POOLS}
        while self.pools:
            left: dict[TaskPool, list[int]] = {}
            for index, code in enumerate(self.pools):
                left.setdefault(POOLS[code], []).append(index)
            for pool in sorted(left):
                generator.shuffle(left[pool])
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


def assign_pools(tasks: TaskSet, rates: Mapping[int, float]) -> bytes:
    """Return the pool code of each task. `rates`: latest pass rate of each seen task, by `hash_text` of its id."""

    def pool_of(index: int) -> TaskPool:
        rate = rates.get(tasks.id_hash(index))
        if rate is None:
            return "unseen"
        if rate <= _HARD:
            return "hard"
        return "easy" if rate >= _EASY else "normal"

    return bytes(POOLS.index(pool_of(index)) for index in range(len(tasks)))
