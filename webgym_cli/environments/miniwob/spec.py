"""MiniWoB as a registered environment: its pages give the reward."""

from __future__ import annotations

from collections.abc import Sequence

from webgym_cli.config.model import Settings
from webgym_cli.environments.base import EnvironmentPool
from webgym_cli.environments.registry import EnvironmentSpec
from webgym_cli.environments.web.tasks import shorten
from webgym_cli.records.task import Task
from webgym_cli.tasks.registry import BadTaskError, TaskFields, select_named

_EXAMPLE = "-s tasks.train=miniwob:click-test,click-dialog"


def _list_tasks(names: str) -> list[Task]:
    from webgym_cli.environments.miniwob.pages import list_pages

    pages = select_named(names, list_pages(), "MiniWoB has no page", _EXAMPLE)
    return [Task(id=name, start_url=f"{name}.html") for name in pages]


def _check_task(task: Task, record: TaskFields) -> None:
    from webgym_cli.environments.miniwob.pages import list_pages, page_of

    if page_of(task) not in list_pages():
        page, name = shorten(task.start_url or task.id), record.name("start_url")
        advice = (
            f"{name} takes a page's name, like click-test.html; a task on the web has an instruction and http://...; "
            "webgym tasks convert reads the files of benchmarks"
        )
        raise BadTaskError(f"MiniWoB has no page {page}", advice)


def _require_expert(settings: Settings, tasks: Sequence[Task]) -> None:
    from webgym_cli.environments.miniwob.oracle import require_expert
    from webgym_cli.environments.miniwob.pages import page_of

    for task in tasks:
        require_expert(page_of(task))


def _make_pool(settings: Settings) -> EnvironmentPool:
    from webgym_cli.environments.miniwob.environment import MiniWobPool

    return MiniWobPool(settings, settings.context_config.interaction_mode)


SPEC = EnvironmentSpec(
    name="miniwob",
    benchmarks=("miniwob",),
    list_tasks=_list_tasks,
    check_task=_check_task,
    make_pool=_make_pool,
    observations=("picture",),
    require_expert=_require_expert,
)
