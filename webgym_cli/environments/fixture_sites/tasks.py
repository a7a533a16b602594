"""All tasks of the sites, for every seed.

They stand in files, `shop_tasks.yaml` and its like. The names of an expression are those of the site's module, `world`
(what the seed decided about the site), `state` (what the episode changed there) and all that was drawn before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from webgym_cli.environments.fixture_sites.registry import SITE_HOSTS
from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.util.registry import suggest_name


@dataclass(frozen=True, slots=True, eq=False)
class SiteTask:
    """One task on one site, for any seed."""

    id: str
    host: str
    instruction: str
    """A template; its names are filled with what was drawn."""
    facts: Mapping[str, str]
    """What must hold: a template for the rubric, and an expression. `says` and `same` compare answers and texts."""
    draw: Mapping[str, str] = field(default_factory=dict)
    """What a seed decides, in this order: a name, or several with commas between, and an expression."""
    reference: str | None = None
    """The answer of an information task, a text for Jinja."""
    rivals: str = "()"
    """An expression: what a right answer does not name, for whoever lists all candidates has not answered."""
    prepare: str = ""
    """An expression that changes the site's fresh state before the episode starts."""
    expert: Sequence[Any] = ()
    """How the task is solved: steps of `SiteExpert`."""

    @property
    def task(self) -> Task:
        """The task as a record, its instruction and rubric still templates."""
        return Task(
            id=self.id,
            instruction=self.instruction,
            start_url=f"http://{self.host}/",
            environment="sites",
            difficulty=len(self.facts),
            rubric=tuple(self.facts),
        )


def find_task(task_id: str) -> SiteTask:
    """Return a task. Raises `UsageError` that names those there are."""
    known = load_site_tasks()
    if task_id not in known:
        raise UsageError(
            f"the sites have no task {task_id!r}; {suggest_name(task_id, known)}",
            hint="webgym tasks sample sites:all -n 10",
        )
    return known[task_id]


@cache
def load_site_tasks() -> dict[str, SiteTask]:
    """Return the tasks by their ids, site after site."""
    tasks = {}
    for host in SITE_HOSTS:
        path = Path(__file__).with_name(f"{host.partition('.')[0]}_tasks.yaml")
        for task_id, fields in yaml.safe_load(path.read_text(encoding="utf-8")).items():
            tasks[task_id] = SiteTask(task_id, host, **fields)
    return tasks
