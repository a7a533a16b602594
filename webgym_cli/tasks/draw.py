"""Draws tasks: endless seeded streams whose every element has a position, so that plans are extended and checked."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import ClassVar

from webgym_cli.errors import SettingsError, UsageError
from webgym_cli.records.task import DifficultyBand
from webgym_cli.tasks.source import BANDS, TaskSet

# Seeds are drawn below this number.
SEEDS = 2**30

# What tells a sampler's streams apart: the band, or None for the one stream over all tasks.
SeedStream = DifficultyBand | None


@dataclass(frozen=True, slots=True)
class DrawnTask:
    """One element of a stream."""

    index: int
    """The task's index in its set."""
    seed: int
    """0 to `SEEDS` - 1."""
    position: int
    """Place in its stream, from 0."""
    greedy: bool = False
    """Whether it is the last of its task in a row, on the seed of the first."""


@dataclass(frozen=True, slots=True)
class TaskSampler:
    """Draws from a set of tasks: all alike (`uniform`), or so many of each band (`ratio`).

    A stream gives each of its tasks in random order, then again in another, endlessly, each with a fresh seed.
    """

    tasks: TaskSet
    name: str
    """What seeds the streams: equal names over equal tasks draw the same."""
    ratio: Mapping[DifficultyBand, float] | None = None
    """Weights of the bands, at least one above 0; None: uniform."""
    chains: int = 1
    """How often a task comes in a row, each time with a fresh seed."""
    greedy: bool = False
    """Whether it comes once more then, with the first of these seeds. The other seeds are the same either way."""

    # Whether the streams follow from tasks and name alone.
    repeatable: ClassVar[bool] = True

    @property
    def group_size(self) -> int:
        """How many elements a task makes in a row."""
        return self.chains + self.greedy

    def stream_of(self, band: DifficultyBand) -> SeedStream:
        """Return the stream that a task of this band comes from."""
        return None if self.ratio is None else band

    def stream(self, which: SeedStream) -> Iterator[DrawnTask]:
        """Yield the elements of a stream, endlessly; none where it has no tasks."""
        if which is None:
            return self._endless(range(len(self.tasks)), random.Random(self.name))
        return self._endless(self.tasks.indices(which), random.Random(f"{self.name}/{which}"))

    def at(self, which: SeedStream, positions: Collection[int]) -> Iterator[DrawnTask]:
        """Yield the elements of a stream at these positions, in the order of the stream."""
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
        """Draw so many elements.

        `start`: the first position of each stream that may be taken (0 where it isn't named). `have`: how many of each
        band were drawn before; the shares then fit the total. `hidden`: tasks that are passed over.
        Raises `UsageError` where nothing can be drawn.
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
        """Return the bands that should have a share, but have no task that may be drawn."""
        wanted = [band for band in BANDS if self.ratio is not None and self.ratio.get(band, 0) > 0]
        return [band for band in wanted if all(index in hidden for index in self.tasks.indices(band))]

    def _shares(self, count: int, have: Mapping[DifficultyBand, int], hidden: Collection[int]) -> dict[SeedStream, int]:
        """Return how many elements each stream gives."""
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
        """Yield the elements of one task in a row, from a position on."""
        seeds = [generator.randrange(SEEDS) for _ in range(self.chains)]
        for number, seed in enumerate(seeds + seeds[: self.greedy]):
            yield DrawnTask(index, seed, position + number, greedy=number == self.chains)


_HINT = "give other tasks or another ratio, or wait until blocked sites are open again (rollout.blocklist_hours)"


def largest_remainder(weights: Mapping[DifficultyBand, float], count: int) -> dict[DifficultyBand, int]:
    """Divide `count` by weights: the whole parts of the quotas first, the rest to the largest remainders.

    Of equal remainders the easier band's comes first. Weights are taken for the decimal numbers that they are written
    as, so that 0.1, 0.2 and 0.7 divide 10 into 1, 2 and 7. Raises `SettingsError` unless one is above 0.
    """
    exact = {band: Fraction(str(weights[band])) for band in BANDS if band in weights}
    total = sum(exact.values())
    if total <= 0 or min(exact.values()) < 0:
        raise SettingsError("the ratio needs a weight above 0, and none below", hint="easy=2,medium=5,hard=3")
    quotas = {band: weight * count / total for band, weight in exact.items()}
    shares = {band: int(quota) for band, quota in quotas.items()}
    by_remainder = sorted(quotas, key=lambda band: shares[band] - quotas[band])  # stable: ties stay easy first
    for band in by_remainder[: count - sum(shares.values())]:
        shares[band] += 1
    return shares
