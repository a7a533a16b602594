"""Tasks of the sites, for every seed, loaded from YAML files.

The files are `shop_tasks.yaml` and so on. Expressions can use the names of the site's module, `world` (the seeded
content), `state` (the episode's changes) and all values sampled before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from webgym_cli.environments.fixture_hosts import SITE_HOSTS
from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.util.registry import suggest_name


@dataclass(frozen=True, slots=True, eq=False)
class SiteTask:
    """One task on one site, for any seed."""

    id: str
    host: str
    instruction: str
    """Template, filled with the sampled values."""
    facts: Mapping[str, str]
    """Conditions of success: a rubric template and an expression. `says` and `same` compare answers and texts."""
    draw: Mapping[str, str] = field(default_factory=dict)
    """Sampled values in order: one name, or several separated by commas, and an expression."""
    reference: str | None = None
    """Answer of an information task, a Jinja template."""
    rivals: str = "()"
    """Expression: texts that a right answer must not contain, because listing all candidates is no answer."""
    prepare: str = ""
    """Expression that changes the site's initial state before the episode."""
    expert: Sequence[Any] = ()
    """Solution of the task: steps of `follow_steps`."""

    @property
    def task(self) -> Task:
        """The task as a record; instruction and rubric are templates."""
        return Task(
            id=self.id,
            instruction=self.instruction,
            start_url=f"http://{self.host}/",
            environment="sites",
            difficulty=len(self.facts),
            rubric=tuple(self.facts),
        )


def find_task(task_id: str) -> SiteTask:
    """Return a task. Raises `UsageError` with the known names."""
    known = load_site_tasks()
    if task_id not in known:
        raise UsageError(
            f"the sites have no task {task_id!r}; {suggest_name(task_id, known)}",
            hint="webgym tasks sample sites:all -n 10",
        )
    return known[task_id]


@cache
def load_site_tasks() -> dict[str, SiteTask]:
    """Return the tasks by id, site by site."""
    tasks = {}
    for host in SITE_HOSTS:
        path = Path(__file__).with_name(f"{host.partition('.')[0]}_tasks.yaml")
        for task_id, fields in yaml.safe_load(path.read_text(encoding="utf-8")).items():
            tasks[task_id] = SiteTask(task_id, host, **fields)
    return tasks
