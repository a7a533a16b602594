"""Seeded sampling of an iteration's episodes: task, seed and step limit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from webgym_cli.config.model import Settings
from webgym_cli.environments.registry import find_environment
from webgym_cli.records.task import Episode, Split, Task
from webgym_cli.tasks.draw import SEEDS, DrawnTask, PassRateSampler, SeedStream, TaskSampler, assign_pools
from webgym_cli.tasks.source import TaskSet
from webgym_cli.util.optional import when
from webgym_cli.util.text import format_count


@dataclass(frozen=True, slots=True)
class EpisodeSampler:
    """Seeded sampler of an iteration's episodes.

    Training episodes are drawn by `tasks.sampler`, differently in each iteration. Test episodes are drawn uniformly and
    are the same in every iteration, so that evaluations are comparable. Tasks generated for the iteration are drawn
    uniformly, too.
    """

    settings: Settings
    split: Split
    iteration: int
    sampler: TaskSampler

    @classmethod
    def of(
        cls,
        tasks: TaskSet,
        settings: Settings,
        split: Split,
        iteration: int,
        *,
        new: bool = False,
        rates: Callable[[], Mapping[int, float]] = dict,
    ) -> EpisodeSampler:
        """Create the sampler of an iteration. `new`: whether the tasks were generated for this iteration only.

        `rates`: reads the newest pass rates, for the sampler `pass_rate`.
        """
        if split is Split.TEST:
            return cls(settings, split, iteration, TaskSampler(tasks, f"{settings.test_seed}/test"))
        part = "train" if settings.tasks.no_repeats else f"train/{iteration}"
        if new:
            part = f"new/{iteration}"
        ratio = settings.tasks.difficulty_ratio if settings.tasks.sampler == "ratio" and not new else None
        name, agent = f"{settings.seed}/{part}", settings.agent
        if _single(settings, iteration):
            return cls(settings, split, iteration, TaskSampler(tasks, f"{name}/demonstrations", ratio))
        if settings.tasks.sampler == "pass_rate" and not new:
            shares, pools = settings.tasks.pool_shares, assign_pools(tasks, rates())
            sampler = PassRateSampler(tasks, name, None, agent.num_chains, agent.greedy_chain, pools, shares)
            return cls(settings, split, iteration, sampler)
        return cls(settings, split, iteration, TaskSampler(tasks, name, ratio, agent.num_chains, agent.greedy_chain))

    def further(
        self,
        count: int,
        planned: Sequence[Episode] = (),
        earlier: Iterable[Episode] = (),
        hidden: Collection[int] = frozenset(),
        repeat: int = 0,
    ) -> tuple[Episode, ...]:
        """Draw `count` episodes of a repeat after its planned ones, skipping `hidden` tasks.

        `earlier`: the episodes of earlier iterations. With `tasks.no_repeats` the draw continues after those too, and
        after the rest of a group that they started, since its episodes could not be compared over iterations.
        """
        start: dict[SeedStream, int] = {}
        same = [episode for episode in planned if episode.repeat == repeat]
        size = self.sampler.group_size
        begun = ((episode, episode.position // size * size + size) for episode in self._before(earlier))
        for episode, after in chain(begun, ((episode, episode.position + 1) for episode in same)):
            which = self.sampler.stream_of(episode.task.band)
            start[which] = max(start.get(which, 0), after)
        have = Counter(episode.task.band for episode in same)
        drawn = self.sampler.draw(count, start=start, have=have, hidden=hidden)
        tasks = self.sampler.tasks.read(element.index for element in drawn)
        numbered = enumerate(zip(tasks, drawn, strict=True), len(planned))
        return tuple(self._episode(number, task, element, repeat) for number, (task, element) in numbered)

    def explains(self, planned: Sequence[Episode]) -> bool:
        """Whether each planned episode equals the one that its stream yields at its position."""
        redrawn = self._redraw(planned)
        return redrawn is None or redrawn == list(planned)

    def has_same_tasks(self, planned: Sequence[Episode]) -> bool:
        """Whether each planned episode has the task and seed that its stream yields: the tasks are the same set."""
        redrawn = self._redraw(planned)
        facts = [(episode.task, episode.seed) for episode in planned]
        return redrawn is None or [(episode.task, episode.seed) for episode in redrawn] == facts

    def _redraw(self, planned: Sequence[Episode]) -> list[Episode] | None:
        """Return the episodes at the positions of the planned ones, fewer if positions repeat; None if unrepeatable."""
        if not self.sampler.repeatable:
            return None
        redrawn: dict[int, Episode] = {}
        streams: defaultdict[tuple[SeedStream, int], dict[int, int]] = defaultdict(dict)
        for number, episode in enumerate(planned):
            which = self.sampler.stream_of(episode.task.band)
            streams[which, episode.repeat][episode.position] = number
        for (which, repeat), by_position in streams.items():
            drawn = list(self.sampler.at(which, by_position))
            tasks = self.sampler.tasks.read(element.index for element in drawn)
            for task, element in zip(tasks, drawn, strict=True):
                number = by_position[element.position]
                redrawn[number] = self._episode(number, task, element, repeat)
        return [redrawn[number] for number in sorted(redrawn)]

    def hidden(self, blocked: Collection[str]) -> frozenset[int]:
        """Return the tasks to skip: those on blocked sites in training, none in tests, which stay the same."""
        return self.sampler.tasks.on_sites(blocked) if self.split is Split.TRAIN else frozenset()

    def notes(self, hidden: Collection[int], planned: Sequence[Episode]) -> tuple[str, ...]:
        """Return notes on the sampling for the user. `planned`: all episodes of the iteration."""
        source, duplicates = self.sampler.tasks.source, self.sampler.tasks.duplicates
        bands = self.sampler.bands_without_tasks(hidden)
        notes = [f"{source}: band {band} has no task to draw; the other bands share its part" for band in bands]
        if duplicates:
            notes.append(
                f"{source}: {format_count(duplicates, 'duplicate task')} left out: the same question as an earlier one"
            )
        if repeated := self.sampler.tasks.count_repeated_ids():
            ids = f"{format_count(repeated, 'task')} with the id of an earlier one"
            notes.append(f"{source}: {ids}: tables by task and tasks.sampler=pass_rate take them for one task")
        if cut := self._without_greedy(planned):
            size = self.sampler.group_size
            notes.append(f"no greedy episode yet in {cut} of the groups (agent.greedy_chain): each has {size} episodes")
        return tuple(notes)

    def _without_greedy(self, planned: Sequence[Episode]) -> int:
        """Return the number of planned groups without their greedy episode, which is the last of a group."""
        if not self.sampler.greedy:
            return 0
        size = self.sampler.group_size
        groups = [(self.sampler.stream_of(episode.task.band), episode.position // size) for episode in planned]
        whole = {group for group, episode in zip(groups, planned, strict=True) if episode.greedy}
        return len({*groups} - whole)

    def _before(self, earlier: Iterable[Episode]) -> Iterator[Episode]:
        """Yield the earlier episodes of the same streams, which this iteration continues with `tasks.no_repeats`."""
        if self.split is Split.TRAIN and self.settings.tasks.no_repeats:
            own = _single(self.settings, self.iteration)
            yield from (episode for episode in earlier if _single(self.settings, episode.iteration) == own)

    def _episode(self, number: int, task: Task, drawn: DrawnTask, repeat: int) -> Episode:
        max_steps = find_environment(task.environment).max_steps
        # Test seeds start at SEEDS, training seeds end below it: no test page is trained on.
        return Episode(
            id=f"{self.split}-{self.iteration:04d}-{number:05d}",
            split=self.split,
            iteration=self.iteration,
            task=task,
            seed=drawn.seed + when(self.split is Split.TEST, SEEDS),
            max_steps=max_steps(self.settings, task, self.split),
            position=drawn.position,
            repeat=repeat,
            greedy=drawn.greedy,
        )


def _single(settings: Settings, iteration: int) -> bool:
    """Whether each task of a group is drawn once: in demonstrations the expert acts the same in every chain."""
    return settings.agent.group_size > 1 and iteration < settings.loop.demonstration_iterations
