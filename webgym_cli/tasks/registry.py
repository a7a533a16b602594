"""The registry of environments, as far as the tasks room uses it: where an environment's tasks come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.util.registry import Registry, suggest_name

if TYPE_CHECKING:
    from webgym_cli.config.model import Settings
    from webgym_cli.tasks.convert import ConversionResult


class BadTaskError(ValueError):
    """A line is no task. The message names the field as the line spells it; `advice` says how to fix it."""

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason)
        self.advice = advice

    @property
    def with_advice(self) -> str:
        """The message, and in parentheses how to fix it."""
        return f"{self} ({self.advice})" if self.advice else str(self)


@dataclass(frozen=True, slots=True)
class TaskFields:
    """The fields of one record before it is validated."""

    fields: dict[str, Any]
    """By the names of `Task`."""
    extra: dict[str, Any]
    """Every field that `Task` does not have."""
    spelling: Mapping[str, str]
    """Field of `Task` -> the name that the record has for it, where that is WebGym's."""

    def name(self, field: str) -> str:
        """Return the record's own name of a field, for messages."""
        return self.spelling.get(field, field)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSource:
    """The tasks of one environment. All hooks raise `BadTaskError` for a record that is no task of it."""

    name: str
    """What a task's field `environment` has."""
    prefix: str = ""
    """The word before the colon in `tasks.train=PREFIX:ARGUMENT`. Default: the name."""
    list_tasks: Callable[[str], Iterable[Task]] | None = None
    """Returns the tasks of an argument like `all`. None: tasks come from files only."""
    read_record: Callable[[Mapping[str, Any]], Task | None] | None = None
    """Reads a record that has a form of its own; returns None for one in the common form."""
    claims: Callable[[TaskFields], bool] | None = None
    """Whether a record that names no environment is of this one."""
    complete: Callable[[TaskFields], None] | None = None
    """Mends the fields of a record before they are validated."""
    check_task: Callable[[Task, TaskFields], None] | None = None
    """Refuses a task that the environment can't start."""
    converters: Mapping[str, Callable[[Path, Settings, Sequence[str]], ConversionResult]] = field(default_factory=dict)
    """Other systems' records: by the format's name, makes the tasks of a file; also given: `--site NAME=URL`."""
    benchmarks: tuple[str, ...] = ()
    """What other systems call its tasks, such as BrowserGym's families."""
    has_named_pages: bool = False
    """Whether a task starts on a page that it names, as `click-test.html`, in place of an address."""


# The environments that a task can name.
ENVIRONMENTS: Registry[TaskSource] = Registry(
    noun="environment",
    setting="environment",
    entry_point_group="webgym.environments",
    package="webgym_cli.environments.registry",
    item_type=TaskSource,
    # Texts, not imports: this room is below the environments, which are loaded when a task names them.
    builtin={
        "miniwob": "webgym_cli.environments.miniwob.spec:SPEC",
        "web": "webgym_cli.environments.web.spec:SPEC",
        "webarena": "webgym_cli.environments.webarena.spec:SPEC",
        "sites": "webgym_cli.environments.fixture_sites.spec:SPEC",
        "tools": "webgym_cli.environments.tools.spec:SPEC",
    },
    usage="from webgym_cli.environments.registry import EnvironmentSpec, and make one",
)


def find_source(name: str) -> TaskSource:
    """Return an environment by its name. Raises `UsageError`."""
    return ENVIRONMENTS.registered.get(name) or _load(name)


@cache  # a file of a million tasks asks for the same few names
def _load(name: str) -> TaskSource:
    # Not `module:attribute` as for settings: a task file is data, and must not name code that is imported.
    if name not in (names := ENVIRONMENTS.names()):
        hint = f"{suggest_name(name, names)} (one of yours: name its file in the setting plugins)"
        raise UsageError(f"there is no environment {name!r}", hint=hint)
    return ENVIRONMENTS.find(name)


def all_sources() -> tuple[TaskSource, ...]:
    """Return every environment that can be loaded; a package that is broken is left out."""
    return _load_all(tuple(ENVIRONMENTS.registered))


@lru_cache(maxsize=4)
def _load_all(registered: tuple[str, ...]) -> tuple[TaskSource, ...]:
    return tuple(known.item for known in ENVIRONMENTS.known() if known.item is not None)


def find_prefix(prefix: str) -> TaskSource | None:
    """Return the environment whose tasks `PREFIX:...` names; None where that is no prefix."""
    sources = (source for source in all_sources() if source.list_tasks is not None)
    return next((source for source in sources if (source.prefix or source.name) == prefix), None)


def find_benchmark(name: str) -> TaskSource:
    """Return the environment of another system's tasks; of those that none claims, the open web's."""
    sources = {called: source for source in all_sources() for called in source.benchmarks}
    return sources.get(name) or sources["openended"]


def find_converter(format_: str) -> Callable[[Path, Settings, Sequence[str]], ConversionResult]:
    """Return what makes tasks of a format's records. Raises `UsageError` for a format that no environment has."""
    known = {name: convert for source in all_sources() for name, convert in source.converters.items()}
    if format_ not in known:
        raise UsageError(f"--format: there is no format {format_!r}", hint=f"there are: {', '.join(sorted(known))}")
    return known[format_]


def select_named(names: str, known: Sequence[str], unknown_reason: str, example: str) -> Sequence[str]:
    """Return the names that `all` or a list with commas selects. Raises `UsageError` for one that is not known."""
    if names == "all":
        return known
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in known]:
        raise UsageError(f"tasks: {unknown_reason} {unknown[0]!r}", hint=suggest_name(unknown[0], known))
    if not wanted:
        raise UsageError("tasks: no task is named", hint=example)
    return wanted
