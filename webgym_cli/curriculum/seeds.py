"""Which tasks new ones are made of, which of them each request shows, and what a new task is. Pure."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import median_low
from typing import Any
from urllib.parse import urlsplit

from webgym_cli.agent.sanitize import sanitize_line
from webgym_cli.environments.registry import find_environment
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Observation, PromptSpec
from webgym_cli.tasks.registry import all_sources

# The names of a start page that a request for new tasks shows at most.
MOST_NAMES = 100


@dataclass(frozen=True, slots=True)
class FailedTask:
    """A task that failed."""

    task: Task
    instruction: str
    """What the policy was asked."""
    page: Observation | None
    """The page that it started from; None where nothing was seen."""
    prompt: PromptSpec = field(default_factory=PromptSpec)
    """How the policy was asked."""


@dataclass(frozen=True, slots=True)
class SeedGroup:
    """The failed tasks of one site."""

    site: str
    seeds: tuple[FailedTask, ...]
    """By their tasks' ids."""

    @property
    def start(self) -> FailedTask:
        """The seed that new tasks start like: the first of those that start where most do, with a page if any has."""
        urls = Counter(seed.task.start_url for seed in self.seeds)
        here = [seed for seed in self.seeds if seed.task.start_url == urls.most_common(1)[0][0]]
        return next((seed for seed in here if seed.page is not None), here[0])


@dataclass(frozen=True, slots=True)
class SeedRequest:
    """One question for new tasks."""

    group: SeedGroup
    round: int
    """Counts the requests about a site, from 0."""
    seeds: tuple[FailedTask, ...]
    """Those that it shows, in its order."""


def has_new_tasks(environment: str) -> bool:
    """Tell whether tasks of an environment can be generated: words and an address make one."""
    return find_environment(environment).new_task_fields is not None


def generating_environments() -> list[str]:
    """Return the names of the environments whose tasks can be generated."""
    return sorted({source.name for source in all_sources() if has_new_tasks(source.name)})


def group_name(task: Task) -> str:
    """Return the site by which tasks are grouped: WebArena's names, with `+` between, else the address's host."""
    if name := find_environment(task.environment).group_name(task):
        return name
    try:
        return urlsplit(task.start_url).netloc.lower() or task.start_url
    except ValueError:
        return task.start_url


def group_by_site(seeds: Iterable[FailedTask]) -> tuple[SeedGroup, ...]:
    """Return the seeds by site, both in the order of their names."""
    by_site: dict[str, list[FailedTask]] = {}
    for seed in sorted(seeds, key=lambda seed: (seed.task.id, seed.task.key)):
        by_site.setdefault(group_name(seed.task), []).append(seed)
    return tuple(SeedGroup(site, tuple(by_site[site])) for site in sorted(by_site))


def plan_requests(
    groups: Sequence[SeedGroup], rounds: int, size: int, seed: int
) -> tuple[tuple[SeedRequest, ...], ...]:
    """Return the requests of each round, one for each site.

    A site's seeds are shown in a random order, so many a request, and all of them before any is shown again.
    """
    streams = [(group, _endless(group.seeds, f"{seed}/generate/{group.site}")) for group in groups]
    return tuple(
        tuple(
            SeedRequest(group, number, tuple(islice(stream, min(size, len(group.seeds))))) for group, stream in streams
        )
        for number in range(rounds)
    )


def _endless(seeds: Sequence[FailedTask], name: str) -> Iterator[FailedTask]:
    generator = random.Random(name)
    while True:
        yield from generator.sample(seeds, len(seeds))


def list_names(page: Observation) -> list[str]:
    """Return the names of a page's elements, each once, at most `MOST_NAMES`."""
    names = (sanitize_line(element.name) for element in page.elements)
    return list(islice(dict.fromkeys(name for name in names if name), MOST_NAMES))


def build_task(instruction: str, request: SeedRequest) -> Task:
    """Return a generated task: it starts as most failed ones of its site do, and is about as hard."""
    start = request.group.start.task
    extra: dict[str, Any] = {"generated": True, "seeds": [seed.task.id for seed in request.seeds]}
    if (new_fields := find_environment(start.environment).new_task_fields) is not None:
        extra |= new_fields(start)
    content = "\0".join((instruction, start.start_url, request.group.site))
    return Task(
        id=f"generated-{hashlib.sha256(content.encode()).hexdigest()[:16]}",
        instruction=instruction,
        start_url=start.start_url,
        environment=start.environment,
        difficulty=median_low([seed.task.difficulty for seed in request.group.seeds]),
        extra=extra,
    )
