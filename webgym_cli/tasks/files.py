"""Files that tasks name: images of questions, and folders whose files may be uploaded to pages."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from webgym_cli.config.model import Settings
from webgym_cli.errors import UsageError
from webgym_cli.records.task import Split, Task
from webgym_cli.tasks.registry import find_prefix
from webgym_cli.util.files import is_within
from webgym_cli.util.json_values import as_list

IMAGES = "images"
UPLOADS = "upload_folder"
_DATA = "data:"


def place_files(task: Task, folder: Path) -> Task:
    """Return the task with absolute paths in place of those relative to the task file's folder."""
    absolute: dict[str, object] = {}
    uploads, images = task.extra.get(UPLOADS), task.extra.get(IMAGES)
    if isinstance(uploads, str) and uploads:
        absolute[UPLOADS] = str((folder / uploads).absolute())
    if isinstance(images, list) and all(isinstance(image, str) for image in images):
        absolute[IMAGES] = [image if image.startswith(_DATA) else str((folder / image).absolute()) for image in images]
    return task.model_copy(update={"extra": task.extra | absolute}) if absolute else task


def require_files(settings: Settings, tasks: Iterable[Task], field: str, split: Split | None = None) -> None:
    """Raise `UsageError` for a file or folder that is missing, or that tasks may not use.

    They may use what is in the folder of their task file, after resolving links, and in `rollout.file_folders`: a task
    file of someone else must not send this user's files to a page or a server. `split`: that of the tasks, whose file
    is not the other split's; None: either.
    """
    named = {Split.TRAIN: settings.tasks.train, Split.TEST: settings.tasks.test or settings.tasks.train}
    sources = filter(None, (source for of, source in named.items() if split in (of, None)))
    own = (Path(source).parent for source in sources if find_prefix(source.partition(":")[0]) is None)
    folders: list[str | Path] = [*own, *settings.rollout.file_folders]
    for task in tasks:
        for place in _list_paths(task, field):
            if not place.exists():
                raise UsageError(
                    f"task {task.id}: {field}: there is no file {place}", hint="name it by an absolute path"
                )
            if field == UPLOADS and not place.is_dir():
                raise UsageError(f"task {task.id}: {field}: {place} is no folder", hint="name the folder of the file")
            if not any(is_within(place, Path(folder).expanduser()) for folder in folders):
                real = place.resolve()
                given = json.dumps([*settings.rollout.file_folders, str(real if real.is_dir() else real.parent)])
                raise UsageError(
                    f"task {task.id}: {field}: {place} is not in the task file's folder",
                    hint=f"if the tasks may use its files: -s rollout.file_folders='{given}'",
                )


def _list_paths(task: Task, field: str) -> list[Path]:
    places = as_list(task.extra.get(field) or [])
    if not all(isinstance(place, str) for place in places):
        raise UsageError(
            f"task {task.id}: {field}: paths are needed", hint=f"write {field} as a text, or a list of texts"
        )
    return [Path(place) for place in places if not place.startswith(_DATA)]
