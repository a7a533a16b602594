"""`webgym tasks check --try`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from webgym_cli.cli.output import Output
from webgym_cli.errors import UsageError
from webgym_cli.util.text import format_count

if TYPE_CHECKING:
    from webgym_cli.config.model import Settings
    from webgym_cli.records.task import Task


def require_runnable(settings: Settings, files: Sequence[str]) -> None:
    """Raise `WebGymError` for the first task of files that a rollout with these sites and plugins would refuse."""
    from webgym_cli.environments.registry import check_tasks

    check_tasks(settings, _read(files))


def _read(files: Sequence[str]) -> list[Task]:
    from webgym_cli.tasks.source import open_tasks

    opened = [open_tasks(file, encrypted=True) for file in files]
    return [one.task(number) for one in opened for number in range(len(one))]


def try_files(settings: Settings, files: Sequence[str], output: Output) -> None:
    """Try the tasks of files and show each problem. Raises `UsageError` if there is one, or nothing scores a task."""
    from webgym_cli.environments.registry import count_unscored
    from webgym_cli.jobs.signals import run_async
    from webgym_cli.loop.task_trial import try_tasks

    if "-" in files:
        raise UsageError("--try reads the tasks again: it needs files", hint="webgym tasks check FILE --try")
    tasks = _read(files)
    settings = settings.with_changes(tasks={"train": files[0], "test": files[-1]})
    if count := count_unscored(settings, tasks):
        output.note(f"{count} tasks without a check, and judge.base_url is empty: nothing scores their episodes")

    async def show() -> int:
        failed = 0
        async for task, problem in try_tasks(settings, tasks):
            failed += bool(problem)
            _show(output, task, problem)
        return failed

    if failed := run_async(show()):
        raise UsageError(f"{failed} of {len(tasks)} tasks can't be run as they are", hint="mend what the lines name")
    output.note(f"{format_count(len(tasks), 'task')} tried: each starts, and no check is a success before any work")


def _show(output: Output, task: Task, problem: str) -> None:
    if output.as_json:
        output.data({"event": "tried", "task": task.id, "problem": problem or None})
    elif problem:
        output.text(f"task {task.id}: {problem}")
