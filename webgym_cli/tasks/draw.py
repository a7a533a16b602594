"""Task samplers: infinite seeded streams of tasks, whose positions let a plan be extended and verified.

Tasks are drawn uniformly, by difficulty, or by the policy's latest pass rate: from pools of hard, normal, easy and
unseen tasks. A sample is of distinct tasks.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain, islice
from typing import ClassVar, get_args

from webgym_cli.config.tasks import TaskPool
from webgym_cli.errors import SettingsError, UsageError
from webgym_cli.records.task import DifficultyBand, Task
from webgym_cli.tasks.source import BANDS, TaskSet

# Exclusive upper bound of the seeds.
SEEDS = 2**30

# Key of a stream: its band, or None for the single stream over all tasks.
SeedStream = DifficultyBand | None


@dataclass(frozen=True, slots=True)
class DrawnTask:
    """One element of a stream."""

    index: int
    """The task's index in its set."""
    seed: int
    """0 to `SEEDS` - 1."""
    position: int
    """Position in its stream, from 0."""
    greedy: bool = False
    """Whether it is the greedy element: the last of its group, with the seed of the first."""


@dataclass(frozen=True, slots=True)
class TaskSampler:
    """Samples tasks uniformly, or by difficulty band with the weights in `ratio`.

    A stream is an infinite sequence of random permutations of its tasks; each element has a fresh seed.
    """

    tasks: TaskSet
    name: str
    """Seed of the streams: the same name and tasks give the same streams."""
    ratio: Mapping[DifficultyBand, float] | None = None
    """Weights of the bands, at least one above 0; None: uniform sampling."""
    chains: int = 1
    """Number of consecutive elements of a task, each with a fresh seed."""
    greedy: bool = False
    """Whether a group ends with one more element, on its first seed. The other seeds do not depend on this."""

    # Whether the streams depend on the tasks and the name alone.
    repeatable: ClassVar[bool] = True

    @property
    def group_size(self) -> int:
        """Number of consecutive elements of a task, the greedy one included."""
        return self.chains + self.greedy

    def stream_of(self, band: DifficultyBand) -> SeedStream:
        """Return the key of the stream that contains the tasks of a band."""
        return None if self.ratio is None else band

    def stream(self, which: SeedStream) -> Iterator[DrawnTask]:
        """Yield the elements of a stream without end; nothing if the stream has no tasks."""
        if which is None:
            return self._endless(range(len(self.tasks)), random.Random(self.name))
        return self._endless(self.tasks.indices(which), random.Random(f"{self.name}/{which}"))

    def at(self, which: SeedStream, positions: Collection[int]) -> Iterator[DrawnTask]:
        """Yield the elements of a stream at the given positions, in stream order."""
        wanted = frozenset(positions)
        elements = islice(self.stream(which), max(wanted, default=-1) + 1)
        return (element for element in elements if element.position in wanted)

    def draw(
        self,
        count: int,
        *,
        start: Mapping[SeedStream, int] | None = None,
        have: Mapping[DifficultyBand, int] | None = None,
        hidden: Collection[int] = frozenset(),
    ) -> list[DrawnTask]:
        """Draw `count` elements.

        `start`: first position to draw from, per stream (default 0). `have`: elements drawn earlier, per band; the
        shares are then computed over the total. `hidden`: indices of excluded tasks.
        Raises `UsageError` if no task is left to draw.
        """
        start, have = start or {}, have or {}
        drawn: list[DrawnTask] = []
        for which, number in self._shares(count, have, hidden).items():
            visible = (element for element in self.stream(which) if element.index not in hidden)
            later = (element for element in visible if element.position >= start.get(which, 0))
            drawn.extend(islice(later, number))
        if self.ratio is not None:
            random.Random(f"{self.name}/order/{sum(have.values())}").shuffle(drawn)
        return drawn

    def bands_without_tasks(self, hidden: Collection[int] = frozenset()) -> list[DifficultyBand]:
        """Return the bands with a weight above 0 but without a task that may be drawn."""
        wanted = [band for band in BANDS if self.ratio is not None and self.ratio.get(band, 0) > 0]
        return [band for band in wanted if all(index in hidden for index in self.tasks.indices(band))]

    def _shares(self, count: int, have: Mapping[DifficultyBand, int], hidden: Collection[int]) -> dict[SeedStream, int]:
        if count == 0:
            return {}
        if self.ratio is None:
            if all(index in hidden for index in range(len(self.tasks))):
                raise UsageError(f"{self.tasks.source}: no task is left that may be drawn", hint=_HINT)
            return {None: count}
        empty = self.bands_without_tasks(hidden)
        weights = {band: weight for band, weight in self.ratio.items() if weight > 0 and band not in empty}
        if not weights:
            bands = ", ".join(empty)
            raise UsageError(
                f"{self.tasks.source}: no task may be drawn in the bands of the ratio: {bands}", hint=_HINT
            )
        wanted = largest_remainder(weights, sum(have.get(band, 0) for band in weights) + count)
        owed = {band: max(0, number - have.get(band, 0)) for band, number in wanted.items()}
        return dict(largest_remainder(owed, count).items())

    def _endless(self, members: Sequence[int], generator: random.Random) -> Iterator[DrawnTask]:
        position = 0
        while members:
            for place in generator.sample(range(len(members)), len(members)):
                yield from self._group(members[place], position, generator)
                position += self.group_size

    def _group(self, index: int, position: int, generator: random.Random) -> Iterator[DrawnTask]:
        """Yield the group of one task: consecutive elements starting at `position`."""
        seeds = [generator.randrange(SEEDS) for _ in range(self.chains)]
        for number, seed in enumerate(seeds + seeds[: self.greedy]):
            yield DrawnTask(index, seed, position + number, greedy=number == self.chains)


_HINT = "give other tasks or another ratio, or wait until blocked sites are open again (rollout.blocklist_hours)"


def largest_remainder(weights: Mapping[DifficultyBand, float], count: int) -> dict[DifficultyBand, int]:
    """Apportion `count` by weights with the largest-remainder (Hamilton) method.

    Ties go to the easier band. Weights are converted to exact decimal fractions, so that 0.1, 0.2 and 0.7 divide 10
    into 1, 2 and 7. Raises `SettingsError` if no weight is above 0 or one is negative.
    """
    exact = {band: Fraction(str(weights[band])) for band in BANDS if band in weights}
    total = sum(exact.values())
    if total <= 0 or min(exact.values()) < 0:
        raise SettingsError("the ratio needs a weight above 0, and none below", hint="easy=2,medium=5,hard=3")
    quotas = {band: weight * count / total for band, weight in exact.items()}
    shares = {band: int(quota) for band, quota in quotas.items()}
    by_remainder = sorted(quotas, key=lambda band: shares[band] - quotas[band])  # stable: ties go to the easier band
    for band in by_remainder[: count - sum(shares.values())]:
        shares[band] += 1
    return shares


@dataclass(frozen=True, slots=True)
class TaskSample:
    """A sample of tasks, which are read on demand."""

    tasks: TaskSet
    indices: tuple[int, ...]
    """Indices of the sampled tasks in the order of sampling."""
    empty_bands: tuple[DifficultyBand, ...]
    """Bands with a share above 0 but without tasks."""

    def __iter__(self) -> Iterator[Task]:
        return self.tasks.read(self.indices)


def sample_tasks(
    tasks: TaskSet,
    count: int,
    *,
    seed: int = 0,
    ratio: Mapping[DifficultyBand, float] | None = None,
    bands: Collection[DifficultyBand] = (),
    without_sites: Collection[str] = (),
) -> TaskSample:
    """Sample `count` distinct tasks, or all if there are fewer; deterministic in the seed.

    `ratio`: weights of the bands, None: uniform. `bands`: only these; empty: all. Raises `UsageError` if no task is
    left.
    """
    left_out = [band for band in BANDS if bands and band not in bands]
    hidden = set(chain.from_iterable(map(tasks.indices, left_out))) | tasks.on_sites(without_sites)
    sampler = TaskSampler(tasks, f"{seed}/sample", ratio)
    length = {band: len(tasks if ratio is None else tasks.indices(band)) for band in BANDS}
    drawn = sampler.draw(min(count, len(tasks)), hidden=hidden)
    first_round = (one.index for one in drawn if one.position < length[tasks.band(one.index)])
    return TaskSample(tasks, tuple(first_round), tuple(sampler.bands_without_tasks(hidden)))


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
