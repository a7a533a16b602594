"""Seed tasks of task generation, their assignment to requests, and the tasks made from answers. Pure."""

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

from webgym_cli.agent.forms.sanitize import sanitize_line
from webgym_cli.environments.registry import find_environment
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Observation, PromptSpec
from webgym_cli.tasks.expand import follow_template, get_form
from webgym_cli.tasks.registry import all_sources
from webgym_cli.util.optional import group_by

# Maximum number of element names of a start page in a request.
MOST_NAMES = 100


@dataclass(frozen=True, slots=True)
class FailedTask:
    """A failed task, used as seed for new ones."""

    task: Task
    instruction: str
    """Instruction that the policy received."""
    page: Observation | None
    """Observation of its start page; None if there was none."""
    prompt: PromptSpec = field(default_factory=PromptSpec)


@dataclass(frozen=True, slots=True)
class SeedGroup:
    """Failed tasks of one site."""

    site: str
    seeds: tuple[FailedTask, ...]
    """Ordered by task id."""

    @property
    def start(self) -> FailedTask:
        """The seed whose start page new tasks use: the most common start, preferably with an observation."""
        urls = Counter(seed.task.start_url for seed in self.seeds)
        here = [seed for seed in self.seeds if seed.task.start_url == urls.most_common(1)[0][0]]
        return next((seed for seed in here if seed.page is not None), here[0])


@dataclass(frozen=True, slots=True)
class SeedRequest:
    """One request for new tasks."""

    group: SeedGroup
    round: int
    """Number of the request for its site, from 0."""
    seeds: tuple[FailedTask, ...]
    """Seeds shown in the request, in order."""


def has_new_tasks(environment: str) -> bool:
    """Whether tasks of an environment can be generated from an instruction and a URL."""
    return find_environment(environment).new_task_fields is not None


def generating_environments() -> list[str]:
    """Return the environments whose tasks can be generated."""
    return sorted({source.name for source in all_sources() if has_new_tasks(source.name)})


def group_name(task: Task) -> str:
    """Return the site by which tasks are grouped: its name (with the role) or names, else the URL's host."""
    if name := find_environment(task.environment).group_name(task):
        return name
    try:
        return urlsplit(task.start_url).netloc.lower() or task.start_url
    except ValueError:
        return task.start_url


def group_by_site(seeds: Iterable[FailedTask]) -> tuple[SeedGroup, ...]:
    """Return the seeds by site, sites and seeds sorted by name."""
    ordered = sorted(seeds, key=lambda seed: (seed.task.id, seed.task.key))
    by_site = group_by(ordered, lambda seed: group_name(seed.task))
    return tuple(SeedGroup(site, tuple(by_site[site])) for site in sorted(by_site))


def plan_requests(
    groups: Sequence[SeedGroup], rounds: int, size: int, seed: int
) -> tuple[tuple[SeedRequest, ...], ...]:
    """Return the requests of each round, one per site.

    A site's seeds are shuffled and divided among the requests; all are shown before any is repeated.
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
    """Return the distinct element names of a page, at most `MOST_NAMES`."""
    names = (sanitize_line(element.name) for element in page.elements)
    return list(islice(dict.fromkeys(name for name in names if name), MOST_NAMES))


def list_forms(group: SeedGroup) -> list[str]:
    """Return the distinct instructions of the templates of a site's tasks, whose checks new tasks can have."""
    return list(dict.fromkeys(form for seed in group.seeds if (form := get_form(seed.task))))


def build_task(instruction: str, request: SeedRequest) -> Task:
    """Return a generated task: that of a template of its site's failed tasks, if it has the form of one.

    Else it has their most common start page and difficulty, and no check.
    """
    start = request.group.start.task
    extra: dict[str, Any] = {"generated": True, "seeds": [seed.task.id for seed in request.seeds]}
    if (new_fields := find_environment(start.environment).new_task_fields) is not None:
        extra |= new_fields(start)
    content = "\0".join((instruction, start.start_url, request.group.site))
    name = f"generated-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    of_templates = (follow_template(seed.task, instruction) for seed in (*request.seeds, *request.group.seeds))
    if (task := next(filter(None, of_templates), None)) is not None:
        return task.model_copy(update={"id": name, "extra": task.extra | extra})
    return Task(
        id=name,
        instruction=instruction,
        start_url=start.start_url,
        environment=start.environment,
        site=start.site,
        role=start.role,
        difficulty=median_low([seed.task.difficulty for seed in request.group.seeds]),
        extra=extra,
    )
