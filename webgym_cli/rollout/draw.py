"""Draws an iteration's episodes: which task, which seed, how many steps, all of it repeatable."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from webgym_cli.config.model import Settings
from webgym_cli.records.episode import Episode
from webgym_cli.records.task import Split, Task
from webgym_cli.tasks.draw import SEEDS, Drawn, Sampler, Stream
from webgym_cli.tasks.source import TaskSet


@dataclass(frozen=True, slots=True)
class EpisodeDraw:
    """The episodes that tasks and settings give an iteration.

    Training draws by the settings' sampler, differently in each iteration. Test episodes are drawn uniformly and are
    the same in every iteration, so that evaluations compare.
    """

    settings: Settings
    split: Split
    iteration: int
    sampler: Sampler

    @classmethod
    def of(cls, tasks: TaskSet, settings: Settings, split: Split, iteration: int) -> EpisodeDraw:
        """Make the draw of an iteration."""
        if split is Split.TEST:
            return cls(settings, split, iteration, Sampler(tasks, f"{settings.seed}/test"))
        part = "train" if settings.tasks.no_repeats else f"train/{iteration}"
        ratio = settings.tasks.difficulty_ratio if settings.tasks.sampler == "ratio" else None
        chains = settings.agent.num_chains
        return cls(settings, split, iteration, Sampler(tasks, f"{settings.seed}/{part}", ratio, chains))

    def further(
        self,
        count: int,
        planned: Sequence[Episode] = (),
        earlier: Iterable[Episode] = (),
        hidden: Collection[int] = frozenset(),
        repeat: int = 0,
    ) -> tuple[Episode, ...]:
        """Draw so many episodes of a repeat that go on where its planned ones stopped, with `hidden` tasks passed over.

        `earlier`: the episodes of earlier iterations; with `tasks.no_repeats` it goes on after those too.
        """
        start: dict[Stream, int] = {}
        same = [episode for episode in planned if episode.repeat == repeat]
        for episode in chain(earlier if self._goes_on else (), same):
            which = self.sampler.stream_of(episode.task.band)
            start[which] = max(start.get(which, 0), episode.position + 1)
        have = Counter(episode.task.band for episode in same)
        drawn = self.sampler.draw(count, start=start, have=have, hidden=hidden)
        tasks = self.sampler.tasks.read(element.index for element in drawn)
        numbered = enumerate(zip(tasks, drawn, strict=True), len(planned))
        return tuple(self._episode(number, task, element, repeat) for number, (task, element) in numbered)

    def explains(self, planned: Sequence[Episode]) -> bool:
        """Tell whether each of these episodes is the one that its stream has at its position."""
        streams: defaultdict[tuple[Stream, int], dict[int, tuple[int, Episode]]] = defaultdict(dict)
        for number, episode in enumerate(planned):
            which = self.sampler.stream_of(episode.task.band)
            streams[which, episode.repeat][episode.position] = number, episode
        if sum(len(by_position) for by_position in streams.values()) < len(planned):
            return False
        for (which, repeat), by_position in streams.items():
            drawn = list(self.sampler.at(which, by_position))
            tasks = self.sampler.tasks.read(element.index for element in drawn)
            for task, element in zip(tasks, drawn, strict=True):
                number, episode = by_position[element.position]
                if self._episode(number, task, element, repeat) != episode:
                    return False
        return True

    def hidden(self, blocked: Collection[str]) -> frozenset[int]:
        """Return the tasks that are not drawn now: those on blocked sites, but for tests, which stay the same."""
        return self.sampler.tasks.on_sites(blocked) if self.split is Split.TRAIN else frozenset()

    def notes(self, hidden: Collection[int]) -> tuple[str, ...]:
        """Return what a person should know about the draw."""
        source, duplicates = self.sampler.tasks.source, self.sampler.tasks.duplicates
        bands = self.sampler.bands_without_tasks(hidden)
        notes = [f"{source}: band {band} has no task to draw; the other bands share its part" for band in bands]
        if duplicates:
            notes.append(f"{source}: {duplicates} tasks ask the same as an earlier one and count once")
        return tuple(notes)

    @property
    def _goes_on(self) -> bool:
        """Whether an iteration goes on where the one before stopped."""
        return self.split is Split.TRAIN and self.settings.tasks.no_repeats

    def _episode(self, number: int, task: Task, drawn: Drawn, repeat: int) -> Episode:
        """Make an episode. Training has seeds below `SEEDS`, tests from it on: no test page is ever trained on."""
        test, in_turns = self.split is Split.TEST, task.environment == "tools"
        limits = self.settings.rollout.test_max_steps if test else self.settings.rollout.train_max_steps
        return Episode(
            id=f"{self.split}-{self.iteration:04d}-{number:05d}",
            split=self.split,
            iteration=self.iteration,
            task=task,
            seed=drawn.seed + (SEEDS if test else 0),
            max_steps=self.settings.agent.max_turns if in_turns else getattr(limits, task.band.value),
            position=drawn.position,
            repeat=repeat,
        )
