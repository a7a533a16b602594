"""Reads tasks: a JSON Lines file, or the embedded MiniWoB pages."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from webgym_cli.environments.miniwob import page_names
from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task

MINIWOB = "miniwob:"


def load_tasks(source: str) -> list[Task]:
    """Return the tasks of `miniwob:a,b`, `miniwob:all` or a file. Raises `UsageError` with file and line."""
    if source.startswith(MINIWOB):
        return [Task(id=name, start_url=f"{name}.html") for name in _pages(source.removeprefix(MINIWOB))]
    path = Path(source)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        hint = "set tasks.train to a task file or to miniwob:all"
        raise UsageError(f"{path}: the task file can't be read: {reason}", hint=hint) from None
    tasks = [_task(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not tasks:
        raise UsageError(f"{path}: no task in the file", hint="put one task a line, as JSON")
    return tasks


def _pages(names: str) -> list[str]:
    known = page_names()
    if names == "all":
        return list(known)
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in known]:
        raise UsageError(f"tasks: MiniWoB has no page {unknown[0]!r}", hint=f"pages: {', '.join(known)}")
    if not wanted:
        raise UsageError("tasks: no page is named", hint="-s tasks.train=miniwob:click-test,click-dialog")
    return wanted


def _has_page(task: Task) -> bool:
    return (task.start_url or task.id).removesuffix(".html") in page_names()


def _task(path: Path, number: int, line: str) -> Task:
    try:
        value = json.loads(line)
        if not isinstance(value, dict):
            raise UsageError(f"{path}:{number}: a task must be a JSON object", hint=f"mend line {number} of {path}")
        known = {key: value.pop(key) for key in list(value) if key in Task.model_fields and key != "extra"}
        extra = value.pop("extra", {})
        task = Task.model_validate({**known, "extra": {**extra, **value} if isinstance(extra, dict) else extra})
        if task.environment == "miniwob" and not _has_page(task):
            raise UsageError(
                f"{path}:{number}: MiniWoB has no page {task.start_url or task.id!r}",
                hint=f"mend line {number} of {path}: start_url takes a page's name, like click-test.html",
            )
        return task
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{path}:{number}: {where}: {first['msg']}", hint=f"mend line {number} of {path}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}:{number}: not JSON: {error}", hint=f"mend line {number} of {path}") from None
