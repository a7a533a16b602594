"""What a rollout has to do: the iteration's seeded plan, less what is on disk already."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from webgym_cli.config.model import Settings
from webgym_cli.errors import StoreError
from webgym_cli.records.episode import Episode
from webgym_cli.records.task import Split, Task
from webgym_cli.rollout.tasks import load_tasks
from webgym_cli.store.buffer import Damage, scan
from webgym_cli.store.files import read_jsonl, write_lines
from webgym_cli.store.run import RunDir

SEEDS = 2**30
"""Training episodes draw seeds below this number, test episodes from it on: no test page is ever trained on."""


@dataclass(frozen=True, slots=True)
class Owed:
    """An episode that still needs a trajectory, and which attempt that would be."""

    episode: Episode
    attempt: int
    """Number of this attempt, from 0."""
    failures: int = 0
    """Earlier attempts that infrastructure spoilt (cancelled ones don't count)."""


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """What a rollout will do."""

    split: Split
    iteration: int
    policy: str
    """`vllm`, `oracle` or a base URL."""
    episodes: tuple[Episode, ...]
    """Everything that was ever planned for this iteration and split."""
    owed: tuple[Owed, ...]
    given_up: int
    """Episodes whose attempts are used up by infrastructure failures."""
    damaged: tuple[str, ...] = ()
    """Stored lines that can't be read; their episodes are owed again."""

    @property
    def done(self) -> int:
        """Episodes that have their trajectory."""
        return len(self.episodes) - len(self.owed) - self.given_up

    def to_json(self) -> dict[str, object]:
        """Return what `--dry-run` prints."""
        tasks = Counter(owed.episode.task.id for owed in self.owed)
        return {
            "event": "plan",
            "stage": "rollout",
            "split": self.split,
            "iteration": self.iteration,
            "policy": self.policy,
            "episodes": len(self.episodes),
            "done": self.done,
            "owed": len(self.owed),
            "given_up": self.given_up,
            "owed_by_task": dict(sorted(tasks.items())),
        }


def plan_rollout(
    run: RunDir,
    settings: Settings,
    split: Split,
    iteration: int,
    episodes: int | None = None,
    policy: str | None = None,
) -> RolloutPlan:
    """Return the plan of an iteration. `episodes` beyond those that were planned before extend it, seeded alike.

    `policy`: who acts; None: as the settings say.
    """
    limit = settings.rollout.test_episodes if split is Split.TEST else settings.rollout.episodes
    before = read_plan(run, split, iteration)
    wanted = max(episodes if episodes is not None else limit, len(before))
    planned = before if len(before) == wanted else draw(_tasks(settings, split), settings, split, iteration, wanted)
    if before and planned[: len(before)] != before:
        raise StoreError(
            f"{run.plan(split, iteration)}: its episodes don't follow from the tasks and settings any more",
            hint="restore the task file, or start another run in another folder",
        )
    return _less_done(run, settings, planned, split, iteration, policy or settings.rollout.policy)


def draw(tasks: Sequence[Task], settings: Settings, split: Split, iteration: int, count: int) -> tuple[Episode, ...]:
    """Draw episodes: every task once in random order, then again, each with a fresh seed.

    A longer draw starts with the shorter one. Test episodes are the same in every iteration, so that evaluations
    compare; training episodes differ.
    """
    part = "test" if split is Split.TEST else f"train/{iteration}"
    generator = random.Random(f"{settings.seed}/{part}")
    drawn = _endless(tasks, generator)
    limits = settings.rollout.test_max_steps if split is Split.TEST else settings.rollout.train_max_steps
    first_seed = SEEDS if split is Split.TEST else 0
    return tuple(
        Episode(
            id=f"{split}-{iteration:04d}-{number:05d}",
            split=split,
            iteration=iteration,
            task=(task := next(drawn)),
            seed=first_seed + generator.randrange(SEEDS),
            max_steps=getattr(limits, task.band.value),
        )
        for number in range(count)
    )


def write_plan(run: RunDir, plan: RolloutPlan) -> None:
    """Write the plan, before its first episode."""
    path = run.plan(plan.split, plan.iteration)
    if read_plan(run, plan.split, plan.iteration) != plan.episodes:
        write_lines(path, (episode.model_dump(mode="json") for episode in plan.episodes))


def read_plan(run: RunDir, split: Split, iteration: int) -> tuple[Episode, ...]:
    """Return the episodes planned so far; none when there is no plan. Raises `StoreError`."""
    path = run.plan(split, iteration)
    if not path.is_file():
        return ()
    try:
        return tuple(Episode.model_validate(value) for value in read_jsonl(path))
    except ValidationError as error:
        raise StoreError(f"{path}: not a plan of this version: {error.errors()[0]['msg']}") from error


def _endless(tasks: Sequence[Task], generator: random.Random) -> Iterator[Task]:
    while True:
        yield from generator.sample(tasks, len(tasks))


def _tasks(settings: Settings, split: Split) -> list[Task]:
    return load_tasks(settings.tasks.test or settings.tasks.train if split is Split.TEST else settings.tasks.train)


def _less_done(
    run: RunDir, settings: Settings, planned: tuple[Episode, ...], split: Split, iteration: int, policy: str
) -> RolloutPlan:
    damage = Damage()
    finished: set[str] = set()
    next_attempt: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    for trajectory in scan(run, split, iteration, damage):
        next_attempt[trajectory.episode] = max(next_attempt[trajectory.episode], trajectory.attempt + 1)
        if trajectory.outcome.failure is None:
            finished.add(trajectory.episode)
        elif trajectory.outcome.failure.counts_as_attempt:
            failures[trajectory.episode] += 1
    open_ = [episode for episode in planned if episode.id not in finished]
    owed = [episode for episode in open_ if failures[episode.id] < settings.rollout.max_attempts]
    return RolloutPlan(
        split=split,
        iteration=iteration,
        policy=policy,
        episodes=planned,
        owed=tuple(Owed(episode, next_attempt[episode.id], failures[episode.id]) for episode in owed),
        given_up=len(open_) - len(owed),
        damaged=tuple(damage.lines),
    )
