"""Task sets as an index of a few numbers per task; a task's line is read when the task is drawn."""

from __future__ import annotations

import hashlib
import json
import stat
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, MutableSequence, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from io import BufferedReader
from pathlib import Path
from typing import TypeVar

from webgym_cli.errors import UsageError
from webgym_cli.records.task import DifficultyBand, Task
from webgym_cli.tasks.convert import is_array_start, iter_numbered_lines, read_array, require_lines
from webgym_cli.tasks.encryption import is_encrypted
from webgym_cli.tasks.files import IMAGES, UPLOADS, place_files
from webgym_cli.tasks.format import load_object, parse_task, read_task
from webgym_cli.tasks.registry import ENVIRONMENTS, TASK_FORMATS, BadTaskError, find_prefix, find_source
from webgym_cli.util.optional import when
from webgym_cli.util.urls import site_of
from webgym_cli.util.user_code import require_type

T = TypeVar("T")

# Bands in the order of their codes in an index.
BANDS = tuple(DifficultyBand)
# Number of bytes by which JSON Lines and arrays are distinguished.
_HEAD = 4096


@dataclass(slots=True)
class TaskSet:
    """Tasks indexed from 0 to `len` - 1 in the order of the source.

    The index takes 25 bytes per task.
    """

    source: str
    """The source as given: a file, `miniwob:...`, `sites:...`, `webarena:...` or `arithmetic:...`."""
    read: Callable[[Iterable[int]], Iterator[Task]]
    """Yields the tasks of several indices in order. Raises `UsageError` if their file has changed."""
    duplicates: int = 0
    """Number of duplicates, which are left out."""
    encrypted: bool = False
    """Whether there is an encrypted task."""
    _bands: array[int] = field(default_factory=lambda: array("B"))
    """Indices in `BANDS`."""
    _sites: array[int] = field(default_factory=lambda: array("Q"))
    """Hashes of the sites of the tasks' URLs; 0 without a URL."""
    _ids: array[int] = field(default_factory=lambda: array("Q"))
    """Hashes of the task ids."""

    def fill(self, tasks: Iterable[tuple[T, Task]], kept: MutableSequence[T]) -> TaskSet:
        """Add each task that is no duplicate, append its companion value to `kept`, and return the set."""
        seen, sites = set[int](), dict[str, int]()  # by scheme and host
        for item, task in tasks:
            if (content := fingerprint(task)) in seen:
                self.duplicates += 1
                continue
            seen.add(content)
            self.encrypted = self.encrypted or is_encrypted(task)
            kept.append(item)
            if (host := "/".join(task.start_url.split("/", 3)[:3])) not in sites:
                sites[host] = when(site := site_of(task.start_url), hash_text(site))
            self._bands.append(BANDS.index(task.band))
            self._sites.append(sites[host])
            self._ids.append(hash_text(task.id))
        return self

    def __len__(self) -> int:
        return len(self._bands)

    def task(self, index: int) -> Task:
        """Read one task. Raises `UsageError` if its file has changed."""
        (task,) = self.read((index,))
        return task

    def band(self, index: int) -> DifficultyBand:
        """Return the difficulty band of a task."""
        return BANDS[self._bands[index]]

    def id_hash(self, index: int) -> int:
        """Return the `hash_text` of a task's id."""
        return self._ids[index]

    def count_repeated_ids(self) -> int:
        """Return the number of tasks with the id of an earlier one."""
        return len(self) - len({*self._ids})

    def indices(self, band: DifficultyBand) -> Sequence[int]:
        """Return the indices of a band's tasks, ascending."""
        code = BANDS.index(band)
        return array("L", (index for index, known in enumerate(self._bands) if known == code))

    def on_sites(self, sites: Collection[str]) -> frozenset[int]:
        """Return the indices of the tasks that start on one of these sites (`example.com`)."""
        wanted = {hash_text(site) for site in sites if site}
        return frozenset(index for index, known in enumerate(self._sites) if known in wanted)


def open_tasks(source: str, *, encrypted: bool = False) -> TaskSet:
    """Return the tasks of a file, or of `miniwob:all`, `sites:a,b`, `webarena:fixture`, `arithmetic:train` and so on.

    A file contains JSON Lines or one JSON array. Every line is read and validated once. Raises `UsageError` with file
    and line of the first invalid one, and for encrypted tasks unless they may be (in an evaluation).
    """
    tasks = _open(source)
    if tasks.encrypted and not encrypted:
        raise UsageError(f"{source}: its authors forbid to train on its tasks", hint=f"webgym eval RUN -b {source}")
    return tasks


def _open(source: str) -> TaskSet:
    prefix, colon, argument = source.partition(":")
    if colon and (known := find_prefix(prefix)) is not None and known.list_tasks is not None:
        return index_tasks(source, known.list_tasks(argument))
    try:
        return _open_file(source, _version(Path(source)))
    except OSError as error:
        if prefix in ENVIRONMENTS.names():
            find_source(prefix)  # raises if its package is broken
        if not Path(source).exists():
            _refuse_name(source)
        raise _unreadable(Path(source), error) from None


def _refuse_name(source: str) -> None:
    """Raise `UsageError` for the name of a benchmark whose tasks webgym lacks, or of an environment without a set."""
    name = source.casefold().replace("_", "-")
    if find_prefix(name) is not None and name not in TASK_FORMATS.names():
        raise UsageError(f"{source}: name a set of its tasks", hint=f"{name}:all")
    if name in TASK_FORMATS.names():
        raise UsageError(
            f"{source}: webgym lacks this benchmark's tasks: convert the file of its authors, and name the result here",
            hint=f"webgym tasks convert FILE --format {name} -o {name}.jsonl",
        )


def open_lines(path: Path) -> BufferedReader:
    """Open a task file. Raises `UsageError`, also for a table, an archive or Parquet."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        require_lines(str(path), file.peek(_HEAD))
    except UsageError:
        file.close()
        raise
    return file


def fingerprint(task: Task) -> int:
    """Return a 64-bit hash that is equal for tasks with the same question: instruction, start, files and answer.

    If the environment generates the instruction (MiniWoB), a task without URL is identified by its id. All unknown
    fields count where a check reads them, and without a URL: benchmarks of the web list one question under several
    topics.
    """
    place = task.start_url or when(not task.instruction, task.id)
    is_whole = task.check or not task.start_url
    extra = task.extra if is_whole else {name: task.extra.get(name) for name in (IMAGES, UPLOADS)}
    named = (task.instruction, place, task.difficulty, task.site, task.role, task.check, task.reference_answer)
    return hash_text(json.dumps([named, extra], sort_keys=True, default=str))


def hash_text(text: str) -> int:
    """Return a 64-bit hash of a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _read_lines(path: Path, version: tuple[int, int], offsets: array[int], indices: Iterable[int]) -> Iterator[Task]:
    try:
        with path.open("rb") as file:
            if _version(path) != version:
                raise BadTaskError("changed")
            for index in indices:
                file.seek(offsets[index])
                yield place_files(parse_task(file.readline()), path.parent)
    except BadTaskError:
        raise UsageError(
            f"{path}: the task file changed while it was in use", hint="run the same command again"
        ) from None
    except OSError as error:
        raise _unreadable(path, error) from None


@lru_cache(maxsize=2)  # training and test tasks: a command makes more than one plan
def _open_file(source: str, version: tuple[int, int]) -> TaskSet:
    path, offsets = Path(source), array("Q")
    with open_lines(path) as file:
        if is_array_start(file.peek(_HEAD)):
            place, listed = "", []
            try:
                for number, value in read_array(path.read_bytes()):
                    place = f" record {number}:"
                    listed.append(place_files(read_task(load_object(value)), path.parent))
            except BadTaskError as error:
                hint = error.advice or f"all bad records: webgym tasks check {path}"
                raise UsageError(f"{path}:{place} {error}", hint=hint) from None
            if not listed:
                raise UsageError(f"{path}: no task in the file", hint="put a record in the array")
            return index_tasks(source, listed)
        lines = ((offset, _check(path, number, line)) for number, offset, line in iter_numbered_lines(file))
        tasks = TaskSet(source, partial(_read_lines, path, version, offsets)).fill(lines, offsets)
    if not offsets:
        raise UsageError(f"{path}: no task in the file", hint="put one task a line, as JSON")
    return tasks


def _check(path: Path, number: int, line: bytes) -> Task:
    try:
        return place_files(parse_task(line), path.parent)
    except BadTaskError as error:
        advice = f": {error.advice}" if error.advice else f"; all bad lines: webgym tasks check {path}"
        raise UsageError(f"{path}:{number}: {error}", hint=f"fix line {number} of {path}{advice}") from None


def _version(path: Path) -> tuple[int, int]:
    """Return size and modification time, to detect changes. Raises `OSError`, also for what can't be read twice."""
    status = path.stat()
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise OSError(0, "not a file that can be read twice; write it to disk first")
    return status.st_size, status.st_mtime_ns


def _unreadable(path: Path, error: OSError) -> UsageError:
    hint = "name a task file (also of a run whose file was moved), miniwob:all, sites:all or arithmetic:train"
    return UsageError(f"{path}: the task file can't be read: {error.strerror or error}", hint=hint)


def index_tasks(source: str, tasks: Iterable[Task]) -> TaskSet:
    """Return a set of tasks that are held in memory."""
    kept: list[Task] = []
    checked = (require_type(task, Task, f"the list of tasks for {source}") for task in tasks)
    return TaskSet(source, lambda indices: map(kept.__getitem__, indices)).fill(
        ((task, task) for task in checked), kept
    )
