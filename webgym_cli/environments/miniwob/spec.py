"""MiniWoB as a registered environment: its pages give the reward."""

from __future__ import annotations

from webgym_cli.environments.registry import EnvironmentSpec
from webgym_cli.environments.web.tasks import shorten
from webgym_cli.records.task import Task
from webgym_cli.tasks.registry import BadTaskError, TaskFields, select_named
from webgym_cli.util.registry import lazy

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


SPEC = EnvironmentSpec(
    name="miniwob",
    benchmarks=("miniwob",),
    list_tasks=_list_tasks,
    check_task=_check_task,
    make_pool=lazy("webgym_cli.environments.miniwob.environment:MiniWobPool"),
    observations=("picture",),
    require_expert=lazy("webgym_cli.environments.miniwob.oracle:require_experts"),
)
