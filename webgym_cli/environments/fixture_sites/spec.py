"""Registration of the environment `sites`: rewards from its server, or from a configured judge."""

from __future__ import annotations

from webgym_cli.environments.registry import EnvironmentSpec
from webgym_cli.environments.web.tasks import complete_address, shorten
from webgym_cli.records.task import Task
from webgym_cli.tasks.registry import BadTaskError, TaskFields, select_named
from webgym_cli.util.registry import lazy


def _list_tasks(names: str) -> list[Task]:
    from webgym_cli.environments.fixture_sites.tasks import load_site_tasks

    tasks = load_site_tasks()
    selected = select_named(names, list(tasks), "the fixture sites have no task", "-s tasks.train=sites:all")
    return [tasks[name].task for name in selected]


def _check_task(task: Task, record: TaskFields) -> None:
    from webgym_cli.environments.fixture_sites.tasks import load_site_tasks

    if task.id not in load_site_tasks():
        raise BadTaskError(f"{record.name('id')}: the fixture sites have no task {shorten(task.id)}")


SPEC = EnvironmentSpec(
    name="sites",
    list_tasks=_list_tasks,
    complete=complete_address,
    check_task=_check_task,
    make_pool=lazy("webgym_cli.environments.fixture_sites.environment:SitesPool"),
    observations=("picture",),
    leaves_dialogs=True,
    require_expert=lambda settings, tasks: None,  # each task has one
    is_judged=lambda settings: bool(settings.judge.base_url),
)
