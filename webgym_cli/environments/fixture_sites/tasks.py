"""All tasks of the sites, for every seed."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

from webgym_cli.environments.fixture_sites.registry import SITE_HOSTS
from webgym_cli.environments.fixture_sites.task_template import SiteTask
from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.util.registry import suggest_name


def list_site_tasks() -> tuple[Task, ...]:
    """Return the tasks as records, by site. Instruction and rubric are templates that an episode's seed fills in."""
    return tuple(entry.task for entry in _by_id().values())


def find_task(task_id: str) -> SiteTask:
    """Return a task. Raises `UsageError` that names those there are."""
    entry = _by_id().get(task_id)
    if entry is None:
        raise UsageError(
            f"the sites have no task {task_id!r}; {suggest_name(task_id, _by_id())}",
            hint="webgym tasks sample sites:all -n 10",
        )
    return entry


@cache
def _by_id() -> dict[str, SiteTask]:
    tasks = {}
    for host in SITE_HOSTS:
        path = Path(__file__).with_name(f"{host.partition('.')[0]}_tasks.yaml")
        for task_id, fields in yaml.safe_load(path.read_text(encoding="utf-8")).items():
            tasks[task_id] = SiteTask(task_id, host, draw_order=fields.pop("draw"), **fields)
    return tasks
