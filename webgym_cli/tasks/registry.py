"""Registry of environments as task sources, below the environments themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.util.registry import Registry, list_constants, suggest_name

if TYPE_CHECKING:
    from webgym_cli.config.model import Settings


@dataclass(frozen=True, slots=True)
class BadLine:
    """One invalid line."""

    file: str
    line: int
    """Line number, from 1; in a file with one JSON array, the number of the record."""
    reason: str

    def to_json(self) -> dict[str, object]:
        """Return it as data."""
        return {"event": "bad_line", "file": self.file, "line": self.line, "reason": self.reason}


@dataclass(slots=True)
class ConversionResult:
    """Result of converting some files."""

    tasks: list[Task] = field(default_factory=list)
    bad: list[BadLine] = field(default_factory=list)
    repeated: int = 0
    """Number of records left out because they are exact repeats of earlier ones."""


class BadTaskError(ValueError):
    """Invalid task. The message contains the field as spelled in the line; `advice` explains how to fix it."""

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason)
        self.advice = advice

    @property
    def with_advice(self) -> str:
        """The message, followed by the advice in parentheses."""
        return f"{self} ({self.advice})" if self.advice else str(self)


@dataclass(frozen=True, slots=True)
class TaskFields:
    """Fields of one record before validation."""

    fields: dict[str, Any]
    """Fields of `Task`, by their names there."""
    extra: dict[str, Any]
    """All other fields."""
    spelling: Mapping[str, str]
    """Field of `Task` -> its name in the record, if that is WebGym's."""

    def name(self, field: str) -> str:
        """Return a field's name in the record, for messages."""
        return self.spelling.get(field, field)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSource:
    """Task source of one environment. All hooks raise `BadTaskError` for an invalid record."""

    name: str
    """Value of the task field `environment`."""
    prefix: str = ""
    """Prefix in `tasks.train=PREFIX:ARGUMENT`. Default: the name."""
    list_tasks: Callable[[str], Iterable[Task]] | None = None
    """Returns the tasks for an argument such as `all`. None: tasks come only from files."""
    read_record: Callable[[Mapping[str, Any]], Task | None] | None = None
    """Reads a record in the environment's own format; returns None for the common format."""
    claims: Callable[[TaskFields], bool] | None = None
    """Whether a record without an environment belongs to this one."""
    complete: Callable[[TaskFields], None] | None = None
    """Completes the fields of a record before validation."""
    check_task: Callable[[Task, TaskFields], None] | None = None
    """Refuses a task that the environment can't start."""
    benchmarks: tuple[str, ...] = ()
    """Names of its tasks in other systems, such as BrowserGym's benchmarks."""

    def __post_init__(self) -> None:
        """Raise `TypeError` for a hook that is no function."""
        for hook in fields(self):
            value = getattr(self, hook.name)
            if "Callable" in str(hook.type) and value is not None and not callable(value):
                raise TypeError(f"{self.name}: {hook.name} is {value!r}, not a function")


ENVIRONMENTS: Registry[TaskSource] = Registry(
    noun="environment",
    setting="environment",
    item_type=TaskSource,
    # Names instead of imports: environments are above this package and loaded only when needed.
    builtin={
        "miniwob": "webgym_cli.environments.miniwob.spec:SPEC",
        "web": "webgym_cli.environments.web.spec:SPEC",
        "webarena": "webgym_cli.environments.webarena.spec:SPEC",
        "sites": "webgym_cli.environments.fixture_sites.spec:SPEC",
        "tools": "webgym_cli.environments.tools.spec:SPEC",
    },
    usage="from webgym_cli.environments.registry import EnvironmentSpec, and make one",
)


@dataclass(frozen=True, slots=True)
class TaskFormat:
    """Another system's task files."""

    convert: Callable[[Path, Settings, Sequence[str]], ConversionResult]
    """Converts the files at a path; gets the settings and the `--site NAME=URL` options."""
    fields: frozenset[str] = frozenset()
    """Fields by which a record is known, if they are like no other's."""


TASK_FORMATS: Registry[TaskFormat] = Registry(
    noun="task format",
    setting="--format",
    item_type=TaskFormat,
    builtin={
        "webarena": "webgym_cli.environments.webarena.tasks:WEBARENA",
        "gsm8k": "webgym_cli.environments.tools.question_answer:GSM8K",
        "online-mind2web": "webgym_cli.environments.web.benchmarks:OM2W",
        **list_constants(
            "webgym_cli.environments.web.benchmarks",
            *("webvoyager", "deepshop", "webtailbench", "odysseys", "assistantbench", "browsecomp", "bu-bench"),
        ),
    },
    usage="from webgym_cli.tasks.registry import TaskFormat, and make one of your function",
)


@lru_cache(maxsize=8)  # the records of a file have the same fields
def suggest_format(record: frozenset[str]) -> str:
    """Return the command for the published format with the most of a record's fields; empty for other records."""
    formats = ((known.item.fields, known.name) for known in TASK_FORMATS.known() if known.item)
    fitting = {len(fields): name for fields, name in formats if fields and fields <= record}
    return f"webgym tasks convert FILE --format {fitting[max(fitting)]} -o tasks.jsonl" if fitting else ""


def find_source(name: str) -> TaskSource:
    """Return an environment by name. Raises `UsageError`."""
    return ENVIRONMENTS.registered.get(name) or _load(name)


@cache  # a file with a million tasks looks up only a few names
def _load(name: str) -> TaskSource:
    # No `module:attribute` as in settings: a task file is data and must not cause imports.
    if name not in (names := ENVIRONMENTS.names()):
        hint = f"{suggest_name(name, names)} (one of yours: name its file in the setting plugins)"
        raise UsageError(f"there is no environment {name!r}", hint=hint)
    return ENVIRONMENTS.find(name)


def all_sources() -> tuple[TaskSource, ...]:
    """Return all environments that can be loaded; broken packages are left out."""
    return _load_all(tuple(ENVIRONMENTS.registered))


@lru_cache(maxsize=4)
def _load_all(registered: tuple[str, ...]) -> tuple[TaskSource, ...]:
    return tuple(known.item for known in ENVIRONMENTS.known() if known.item is not None)


def find_prefix(prefix: str) -> TaskSource | None:
    """Return the environment for `PREFIX:...`; None for an unknown prefix."""
    sources = (source for source in all_sources() if source.list_tasks is not None)
    return next((source for source in sources if (source.prefix or source.name) == prefix), None)


def find_benchmark(name: str) -> TaskSource:
    """Return the environment of another system's tasks; the open web's if none claims them."""
    sources = {called: source for source in all_sources() for called in source.benchmarks}
    return sources.get(name) or sources["openended"]


def select_named(names: str, known: Sequence[str], unknown_reason: str, example: str) -> Sequence[str]:
    """Return the names selected by `all` or a comma-separated list. Raises `UsageError` for an unknown name."""
    if names == "all":
        return known
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in known]:
        raise UsageError(f"tasks: {unknown_reason} {unknown[0]!r}", hint=suggest_name(unknown[0], known))
    if not wanted:
        raise UsageError("tasks: no task is named", hint=example)
    return wanted
