"""The fixture sites as a registered environment: their server gives the reward, or a judge where one is configured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from webgym_cli.config.model import Settings
from webgym_cli.environments.base import EnvironmentPool
from webgym_cli.environments.registry import PICTURE_PROMPTS, EnvironmentSpec
from webgym_cli.environments.web.tasks import complete_address, shorten
from webgym_cli.records.task import Task
from webgym_cli.tasks.registry import BadTaskError, TaskFields, select_named


def _list_tasks(names: str) -> list[Task]:
    from webgym_cli.environments.fixture_sites.tasks import list_site_tasks

    tasks = {task.id: task for task in list_site_tasks()}
    selected = select_named(names, list(tasks), "the fixture sites have no task", "-s tasks.train=sites:all")
    return [tasks[name] for name in selected]


@cache
def _list_ids() -> frozenset[str]:
    from webgym_cli.environments.fixture_sites.tasks import list_site_tasks

    return frozenset(task.id for task in list_site_tasks())


def _check_task(task: Task, record: TaskFields) -> None:
    if task.id not in _list_ids():
        raise BadTaskError(f"{record.name('id')}: the fixture sites have no task {shorten(task.id)}")


def _require_expert(settings: Settings, tasks: Sequence[Task]) -> None:
    """Accept every task: each has an expert."""


def _make_pool(settings: Settings) -> EnvironmentPool:
    from webgym_cli.environments.fixture_sites.environment import SitesPool

    return SitesPool(settings, settings.context_config.interaction_mode)


SPEC = EnvironmentSpec(
    name="sites",
    list_tasks=_list_tasks,
    complete=complete_address,
    check_task=_check_task,
    make_pool=_make_pool,
    action_sets=PICTURE_PROMPTS,
    leaves_dialogs=True,
    require_expert=_require_expert,
    is_judged=lambda settings: bool(settings.judge.base_url),
)
