"""Samples of distinct tasks, written to a file of their own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from webgym_cli.records.task import DifficultyBand, Task
from webgym_cli.tasks.draw import TaskSampler
from webgym_cli.tasks.source import BANDS, TaskSet


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
    size = {band: len(tasks.indices(band)) for band in BANDS}
    drawn = sampler.draw(min(count, len(tasks)), hidden=hidden)
    first_round = (
        element
        for element in drawn
        if element.position < (len(tasks) if ratio is None else size[tasks.band(element.index)])
    )
    empty = tuple(sampler.bands_without_tasks(hidden))
    return TaskSample(tasks, tuple(element.index for element in first_round), empty)
