"""Sites that this process serves in place of WebArena's, with tasks and an expert, imported for tasks of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.environments.sites.site_expert import ExpertRun
from webgym_cli.records.task import Task
from webgym_cli.util.registry import lazy

_FOLDER = "webgym_cli.environments.fixture_sites"
list_tasks: Callable[[str], list[Task]] = lazy(f"{_FOLDER}.webarena_tasks:list_tasks")
make_expert: Callable[[Task], ExpertRun] = lazy(f"{_FOLDER}.webarena_tasks:make_expert")
make_server: Callable[[], Any] = lazy(f"{_FOLDER}.environment:SiteServer")
# Seed of the content of all its tasks.
WORLD = 1


def require_experts(settings: Settings, tasks: Iterable[Task]) -> None:
    """Raise `UsageError` for a task without an expert."""
    for task in tasks:
        make_expert(task)
