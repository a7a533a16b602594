"""Opens a set of tasks as an index: a few numbers for each task, whose line is read when the task is drawn."""

from __future__ import annotations

import hashlib
import stat
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

from webgym_cli.errors import UsageError
from webgym_cli.records.task import DifficultyBand, Task
from webgym_cli.tasks.format import load_object, parse_task, place_images, read_task
from webgym_cli.tasks.records import BadArrayError, is_array_start, iter_numbered_lines, read_array
from webgym_cli.tasks.registry import BadTaskError, find_prefix
from webgym_cli.util.urls import site_of

# The bands, in the order of their codes in an index.
BANDS = tuple(DifficultyBand)
# Bytes by which a file is told to be JSON Lines or an array.
_HEAD = 4096


@dataclass(slots=True)
class TaskIndex:
    """What is known of each task without reading it again: 25 bytes a task."""

    bands: array[int] = field(default_factory=lambda: array("B"))
    """Places in `BANDS`."""
    sites: array[int] = field(default_factory=lambda: array("Q"))
    """Hashes of the sites of the tasks' addresses; 0 without one."""
    ids: array[int] = field(default_factory=lambda: array("Q"))
    """Hashes of the tasks' ids."""
    duplicates: int = 0
    """Tasks that were left out because an equal one came before."""
    _seen: set[int] = field(default_factory=set)
    _known_sites: dict[str, int] = field(default_factory=dict)
    """By scheme and host."""

    def add(self, task: Task) -> bool:
        """Note a task. False, and counted as a duplicate, where an equal one is there already."""
        content = fingerprint(task)
        if content in self._seen:
            self.duplicates += 1
            return False
        self._seen.add(content)
        self.bands.append(BANDS.index(task.band))
        self.sites.append(self._site(task.start_url))
        self.ids.append(hash_text(task.id))
        return True

    def close(self) -> None:
        """Forget what only helps to build the index."""
        self._seen, self._known_sites = set(), {}

    def _site(self, url: str) -> int:
        host = "/".join(url.split("/", 3)[:3])
        if host not in self._known_sites:
            self._known_sites[host] = site_hash(site_of(url))
        return self._known_sites[host]


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Tasks that can be drawn, each known by its index: 0 to `len` - 1, in the order of the source."""

    source: str
    """As it was given: a file, `miniwob:...`, `sites:...`, `webarena:...` or `arithmetic:...`."""
    _index: TaskIndex
    read: Callable[[Iterable[int]], Iterator[Task]]
    """Yields the tasks of many indices, in their order. Raises `UsageError` where their file has changed since."""

    def __len__(self) -> int:
        return len(self._index.bands)

    @property
    def duplicates(self) -> int:
        """How many tasks of the source were left out, since they ask the same as an earlier one."""
        return self._index.duplicates

    def task(self, index: int) -> Task:
        """Read one task. Raises `UsageError` where its file has changed since."""
        (task,) = self.read((index,))
        return task

    def band(self, index: int) -> DifficultyBand:
        """Return the difficulty band of a task."""
        return BANDS[self._index.bands[index]]

    def id_hash(self, index: int) -> int:
        """Return the `hash_text` of a task's id."""
        return self._index.ids[index]

    def indices(self, band: DifficultyBand) -> Sequence[int]:
        """Return the indices of the tasks of a band, ascending."""
        code = BANDS.index(band)
        return array("L", (index for index, known in enumerate(self._index.bands) if known == code))

    def on_sites(self, sites: Collection[str]) -> frozenset[int]:
        """Return the indices of the tasks that start on one of these sites (`example.com`)."""
        wanted = {site_hash(site) for site in sites if site}
        return frozenset(index for index, known in enumerate(self._index.sites) if known in wanted)


def open_tasks(source: str) -> TaskSet:
    """Return the tasks of `miniwob:all`, `sites:a,b`, `webarena:fixture`, `arithmetic:train` and such, or of a file.

    A file has JSON Lines, or is one JSON array.

    Every line of a file is read and checked once. Raises `UsageError` with file and line of the first bad one.
    """
    prefix, colon, argument = source.partition(":")
    if colon and (known := find_prefix(prefix)) is not None and known.list_tasks is not None:
        return _in_memory(source, known.list_tasks(argument))
    try:
        return _open_file(source, _version(Path(source)))
    except OSError as error:
        raise _unreadable(Path(source), error) from None


def fingerprint(task: Task) -> int:
    """Return 64 bits of a hash of what is asked: equal for tasks with the same instruction, address and difficulty.

    Where the environment draws the instruction (MiniWoB), a task without an address is its id.
    """
    place = task.start_url or ("" if task.instruction else task.id)
    return hash_text(f"{task.instruction}\0{place}\0{task.difficulty}")


def site_hash(site: str) -> int:
    """Return 64 bits of a hash of a site; 0 for none."""
    return hash_text(site) if site else 0


def hash_text(text: str) -> int:
    """Return 64 bits of a hash of a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _read_lines(path: Path, version: tuple[int, int], offsets: array[int], indices: Iterable[int]) -> Iterator[Task]:
    try:
        with path.open("rb") as file:
            if _version(path) != version:
                raise BadTaskError("changed")
            for index in indices:
                file.seek(offsets[index])
                yield place_images(parse_task(file.readline()), path.parent)
    except BadTaskError:
        raise UsageError(
            f"{path}: the task file changed while it was in use", hint="run the same command again"
        ) from None
    except OSError as error:
        raise _unreadable(path, error) from None


@lru_cache(maxsize=2)  # training and test tasks: a command plans more than once
def _open_file(source: str, version: tuple[int, int]) -> TaskSet:
    path, index, offsets = Path(source), TaskIndex(), array("Q")
    with path.open("rb") as file:
        if is_array_start(file.read(_HEAD)):
            return _in_memory(source, _in_array(path))
        file.seek(0)
        for number, offset, line in iter_numbered_lines(file):
            if index.add(_check(path, number, line)):
                offsets.append(offset)
    if not offsets:
        raise UsageError(f"{path}: no task in the file", hint="put one task a line, as JSON")
    index.close()
    return TaskSet(source, index, partial(_read_lines, path, version, offsets))


def _check(path: Path, number: int, line: bytes) -> Task:
    try:
        return place_images(parse_task(line), path.parent)
    except BadTaskError as error:
        advice = f": {error.advice}" if error.advice else f"; all bad lines: webgym tasks check {path}"
        raise UsageError(f"{path}:{number}: {error}", hint=f"fix line {number} of {path}{advice}") from None


def _in_array(path: Path) -> list[Task]:
    """Return the tasks of a file that is one array. Raises `UsageError` that names the record."""
    place, tasks = "", []
    try:
        for number, value in read_array(path.read_bytes()):
            place = f" record {number}:"
            tasks.append(place_images(read_task(load_object(value)), path.parent))
    except (BadArrayError, BadTaskError) as error:
        raise UsageError(f"{path}:{place} {error}", hint=f"all bad records: webgym tasks check {path}") from None
    if not tasks:
        raise UsageError(f"{path}: no task in the file", hint="put a record in the array")
    return tasks


def _version(path: Path) -> tuple[int, int]:
    """Return what tells a file from its later self. Raises `OSError`, also for what can't be read twice."""
    status = path.stat()
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise OSError(0, "not a file that can be read twice; write it to disk first")
    return status.st_size, status.st_mtime_ns


def _unreadable(path: Path, error: OSError) -> UsageError:
    hint = "set tasks.train to a task file, to miniwob:all, to sites:all or to arithmetic:train"
    return UsageError(f"{path}: the task file can't be read: {error.strerror or error}", hint=hint)


def _in_memory(source: str, tasks: Iterable[Task]) -> TaskSet:
    index = TaskIndex()
    kept = tuple(task for task in tasks if index.add(task))
    index.close()
    return TaskSet(source, index, lambda indices: (kept[index] for index in indices))
