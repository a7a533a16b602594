"""Shell completion. It runs on a key press, so imports and file reads are kept small."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import typer

# Maximum entries of a folder that are scanned.
MOST_ENTRIES = 5000
# Maximum bytes of trajectories that are read for their ids, newest iterations first.
MOST_BYTES = 32 << 20
MOST_IDS = 500
# Text without characters that are special in a shell.
_PLAIN = re.compile(r"[\w./:=@%+,~-]+")
_ID = re.compile(rb'"id": ?"([^"\\]+)"')
# Leading bytes of a trajectory's line that contain its id.
_HEAD = 400


def runs(incomplete: str) -> list[str]:
    """Complete runs in the typed folder and in its subfolders."""
    return list(_paths(incomplete, lambda path: (path / "run.json").is_file()))


def settings_files(incomplete: str) -> list[str]:
    """Complete the names of shipped settings files, and YAML files."""
    from webgym_cli.config.shipped import shipped_root

    shipped = sorted(path.stem for path in shipped_root().glob("*.yaml"))
    return [*shipped, *_paths(incomplete, lambda path: path.suffix in (".yaml", ".yml"))]


def settings(incomplete: str) -> list[str]:
    """Complete settings keys, and after a key its values: the choices, or else the default.

    Values are added as soon as one key is left, because a shell ends the word after a single completion.
    """
    from webgym_cli.config.sources import known_keys

    known = known_keys()
    key, equals, _ = incomplete.partition("=")
    near = [name for name in known if name == key or (not equals and name.startswith(key))]
    # Keys end in =, so that the shell adds no space.
    if len(near) > 1:
        return [f"{name}=" for name in near]
    return [f"{name}={value}" for name in near for value in ("", *_values(known[name])) if _is_plain(value)]


def tasks(incomplete: str) -> list[str]:
    """Complete shipped tasks and JSON Lines files."""
    return ["miniwob:all", "sites:all", "webarena:fixture", *_paths(incomplete, lambda path: path.suffix == ".jsonl")]


def policies() -> list[str]:
    """Complete the built-in policies; a URL is not completed."""
    return ["oracle", "vllm"]


def export_formats() -> list[str]:
    """Complete the registered export formats; those of a `plugins` file are not completed."""
    from webgym_cli.prepare.export.registry import FORMATS

    return FORMATS.names()


def task_formats() -> list[str]:
    """Complete the registered task formats; those of a `plugins` file are not completed."""
    from webgym_cli.tasks.registry import TASK_FORMATS

    return TASK_FORMATS.names()


def import_formats() -> list[str]:
    """Complete the registered import formats; those of a `plugins` file are not completed."""
    from webgym_cli.imports.registry import IMPORT_FORMATS

    return [*IMPORT_FORMATS.names(), "auto"]


def failures() -> list[str]:
    """Complete the kinds of failure."""
    from webgym_cli.records.failure import FailureKind

    return ["any", *FailureKind]


def trajectories(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the ids of a run's trajectories, newest iterations first."""
    if ctx.params.get("run") is None:
        return []
    from webgym_cli.records.groups import Split
    from webgym_cli.store.run import RunDir

    run = RunDir(Path(ctx.params["run"]))
    parts = [part for split in Split for part in run.trajectories(split).glob("iteration_*/part-*.jsonl")]
    newest = sorted(parts, key=lambda part: part.parent.name, reverse=True)
    matching = (name for name in _ids(newest) if name.startswith(incomplete))
    return sorted(set(islice(matching, MOST_IDS)))


def _paths(incomplete: str, wanted: Callable[[Path], bool]) -> Iterator[str]:
    """Yield the wanted entries of a folder and its subfolders, with the path prefix as typed."""
    folder, slash, name = incomplete.rpartition("/")
    for path in _entries(Path(f"{folder}{slash}").expanduser(), name):
        here = f"{folder}{slash}{path.name}"
        if wanted(path):
            yield here
        elif path.is_dir():
            yield from (f"{here}/{below.name}" for below in _entries(path) if wanted(below))


def _entries(folder: Path, name: str = "") -> list[Path]:
    """Return a folder's entries with a name prefix; hidden ones only if a dot was typed."""
    try:
        entries = list(islice(folder.iterdir(), MOST_ENTRIES))
    except OSError:
        return []
    fit = [path for path in entries if path.name.startswith(name) and (name or not path.name.startswith("."))]
    return sorted(path for path in fit if _is_plain(path.name))


def _ids(parts: Iterable[Path]) -> Iterator[str]:
    left = MOST_BYTES
    for part in parts:
        try:
            with part.open("rb") as lines:
                for line in lines:
                    if match := _ID.search(line[:_HEAD]):
                        yield match[1].decode(errors="replace")
                    left -= len(line)
                    if left < 0:
                        return
        except OSError:
            continue


def _values(field: Any) -> Iterator[str]:
    """Yield the values of a setting in command-line syntax."""
    import json

    values = list(_choices(field.annotation)) or [field.get_default(call_default_factory=True)]
    yield from (item if isinstance(item, str) else json.dumps(item, default=str) for item in values)


def _choices(kind: Any) -> Iterator[object]:
    """Yield the values of an enumerated type."""
    from types import NoneType, UnionType
    from typing import Literal, Union, get_args, get_origin

    if kind is bool:
        yield from (True, False)
    elif get_origin(kind) is Literal:
        yield from get_args(kind)
    elif get_origin(kind) in (Union, UnionType):
        parts = get_args(kind)
        closed = [list(_choices(part)) for part in parts if part is not NoneType]
        if all(closed):
            yield from (value for values in closed for value in values)
            yield from [None] * (NoneType in parts)


def _is_plain(text: str) -> bool:
    return not text or bool(_PLAIN.fullmatch(text))
