"""Tasks from templates: each template is filled in with the values of its parameters, and some values are held out."""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import math
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from webgym_cli.errors import UsageError
from webgym_cli.records.base import describe_invalid, is_finite
from webgym_cli.records.task import Task
from webgym_cli.tasks.convert import TABLES, open_table
from webgym_cli.tasks.format import is_number, read_task
from webgym_cli.tasks.registry import BadTaskError
from webgym_cli.util.json_values import digest_json, list_leaves
from webgym_cli.util.text import split_command
from webgym_cli.util.yaml_text import read_yaml

# `{parameter}` or `{parameter.column}` in a text of a template.
PLACEHOLDER = re.compile(r"\{(\w+)(?:\.(\w+))?\}")
# What is no placeholder, but begins like one.
_OPENED = re.compile(r"\{\s*(\w+)")
_COMMAND_SECONDS = 60.0
# Field of a task with the template that it was made from.
TEMPLATE = "template"
MAX_TASKS = 1_000_000


class ParameterSource(BaseModel):
    """Values that are not listed in the file of templates itself."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    csv: str = ""
    """CSV file with a header, relative to the file of templates; each row is a value with its columns."""
    command: str = ""
    """Command line, run without a shell in the folder of the file of templates; each line of its output is a value, as
    JSON or as text."""


class TaskTemplates(BaseModel):
    """A file of templates."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    parameters: dict[str, list[Any] | ParameterSource] = Field(default_factory=dict)
    """Values by parameter: a list, or where they come from."""
    held_out: dict[str, list[Any] | float] = Field(default_factory=dict)
    """Values by parameter whose tasks are all in the test set: a list, or the share of the values."""
    templates: list[dict[str, Any]] = Field(min_length=1)
    """Tasks with `{parameter}` or `{parameter.column}` in their texts."""


@dataclass(frozen=True, slots=True)
class ExpandedTasks:
    """The tasks of a file of templates."""

    train: list[Task] = field(default_factory=list)
    test: list[Task] = field(default_factory=list)
    """Those with a held-out value."""
    held_out: dict[str, list[Any]] = field(default_factory=dict)
    """The held-out values by parameter."""


def expand_templates(path: Path, templates: TaskTemplates | None = None) -> ExpandedTasks:
    """Return the tasks of a file of templates, or of what was read from it. Raises `UsageError`."""
    given = read_templates(path) if templates is None else templates
    if TEMPLATE in given.parameters:
        raise UsageError(f"{path}: parameters.{TEMPLATE}: a task keeps its template there", hint="use another name")
    values = {name: _list_values(path, name, source) for name, source in given.parameters.items()}
    held_out = {name: _choose(path, name, chosen, values) for name, chosen in given.held_out.items()}
    keys = {name: set(map(_key, chosen)) for name, chosen in held_out.items()}
    expanded, ids = ExpandedTasks(held_out=held_out), set[str]()
    used = [_list_parameters(path, template, values) for template in given.templates]
    if unused := values.keys() - set().union(*used):
        hint = "put {NAME} into a template; a name has letters, digits and _"
        raise UsageError(f"{path}: parameters.{min(unused)} is in no template", hint=hint)
    if sum(math.prod(len(values[name]) for name in names) for names in used) > MAX_TASKS:
        raise UsageError(f"{path}: more than {MAX_TASKS:,} tasks", hint="list fewer values")
    for template, names in zip(given.templates, used, strict=True):
        filled = [dict(zip(names, one, strict=True)) for one in itertools.product(*map(values.__getitem__, names))]
        tasks = [_fill_task(path, template, assigned) for assigned in filled]
        counts = Counter(task.id for task in tasks)
        for task, assigned in zip(tasks, filled, strict=True):
            if counts[task.id] > 1:  # of `Red` and `red`, or of values that the id does not name
                task = task.model_copy(update={"id": f"{task.id}-{digest_json(assigned)[:8]}"})
            if task.id in ids:
                raise UsageError(f"{path}: two tasks have the id {task.id}", hint="give each template an id of its own")
            ids.add(task.id)
            is_held_out = any(_key(assigned[name]) in keys[name] for name in keys.keys() & assigned.keys())
            (expanded.test if is_held_out else expanded.train).append(task)
    if not expanded.train:
        raise UsageError(f"{path}: held_out leaves no task for training", hint="hold out fewer values")
    return expanded


def get_form(task: Task) -> str:
    """Return the instruction with placeholders of the template of a task; empty without one that others can follow."""
    template = task.extra.get(TEMPLATE)
    form = template.get("instruction") if isinstance(template, Mapping) else None
    if not isinstance(form, str):
        return ""
    named = {match[1] for match in PLACEHOLDER.finditer(form)}
    used = list(_find_placeholders(template))
    # A column, or a parameter that the instruction does not name, can't be read from another instruction.
    return form if used and all(match[2] is None and match[1] in named for match in used) else ""


def follow_template(task: Task, instruction: str) -> Task | None:
    """Return the task that the template of another task makes with the values of an instruction; None if it has none.

    It has the template's check, with these values as its fields, which are numbers where the other task's are.
    """
    if not (form := get_form(task)) or (values := parse_values(form, instruction)) is None:
        return None
    typed = {name: _parse(text) if is_number(task.extra.get(name)) else text for name, text in values.items()}
    numbers = [value for name, value in typed.items() if is_number(task.extra.get(name))]
    if not all(is_number(value) and is_finite(value) for value in numbers):
        return None
    return _fill_task(Path("template"), task.extra[TEMPLATE], typed)


def parse_values(form: str, text: str) -> dict[str, str] | None:
    """Return the values that a text has in place of the `{name}` of a form; None if it is not of the form."""
    pattern, seen, end = "", set[str](), 0
    for match in PLACEHOLDER.finditer(form):
        pattern += re.escape(form[end : match.start()])
        pattern += f"(?P={match[1]})" if match[1] in seen else f"(?P<{match[1]}>.+?)"
        seen.add(match[1])
        end = match.end()
    values = re.fullmatch(pattern + re.escape(form[end:]), text, re.DOTALL)
    return values and values.groupdict()


def read_templates(path: Path) -> TaskTemplates:
    """Return the content of a file of templates. Raises `UsageError`."""
    try:
        return TaskTemplates.model_validate(read_yaml(path, is_data=True))
    except OSError as error:
        raise UsageError(f"{path}: the templates can't be read: {error.strerror}") from None
    except ValidationError as error:
        raise UsageError(f"{path}: {describe_invalid(error)}", hint="docs/checks.md has an example") from None
    except (ValueError, RecursionError) as error:  # not UTF-8, a number of 5,000 digits, 1,000 lists within each other
        raise UsageError(f"{path}: the templates can't be read: {error}") from None


def _list_values(path: Path, name: str, source: Sequence[Any] | ParameterSource) -> list[Any]:
    if not isinstance(source, ParameterSource):
        listed = list(source)
    elif bool(source.csv) == bool(source.command):
        raise UsageError(f"{path}: parameters.{name}: either csv or command is needed")
    elif source.csv:
        listed = _read_rows(path, name, source.csv)
    else:
        listed = _run_command(path, name, source.command)
    distinct = list({_key(value): value for value in listed}.values())
    if not distinct:
        raise UsageError(f"{path}: parameters.{name} has no values")
    return distinct


def _read_rows(path: Path, name: str, file: str) -> list[dict[str, str]]:
    try:
        listed = list(open_table((path.parent / file).read_bytes(), TABLES[".csv"]))
    except OSError as error:
        raise UsageError(f"{path}: parameters.{name}: {file} can't be read: {error.strerror}") from None
    except csv.Error as error:
        raise UsageError(f"{path}: parameters.{name}: {file} is no CSV: {error}") from None
    # A missing value is None, and the values without a column are under the name None.
    if ragged := next((number for number, row in enumerate(listed, 1) if None in (*row, *row.values())), 0):
        raise UsageError(f"{path}: parameters.{name}: {file}: row {ragged} and the header differ in length")
    return listed


def _run_command(path: Path, name: str, command: str) -> list[Any]:
    where = f"{path}: parameters.{name}: {command!r}"
    try:
        words = split_command(command) or [command]
        done = subprocess.run(
            words, cwd=path.parent, capture_output=True, encoding="utf-8", timeout=_COMMAND_SECONDS, check=False
        )
    except (OSError, ValueError) as error:  # ValueError: an unclosed quotation mark
        raise UsageError(f"{where} can't be run: {error}") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"{where} took longer than {_COMMAND_SECONDS:g} s") from None
    if done.returncode:
        raise UsageError(": ".join([f"{where} ended with {done.returncode}", *done.stderr.strip().splitlines()[-1:]]))
    # No `splitlines`: a text may have other separators within, such as U+2028.
    if not (lines := [line for line in done.stdout.removeprefix("\ufeff").split("\n") if line.strip()]):
        raise UsageError(f"{where} printed nothing")
    return list(map(_parse, lines))


def _parse(line: str) -> Any:
    with suppress(ValueError):
        value = json.loads(line)
        json.dumps(value, allow_nan=False)  # `Infinity` is a film, and 1e999 no number that JSON can hold
        return value
    return line.strip()


def _choose(path: Path, name: str, chosen: Sequence[Any] | float, values: Mapping[str, list[Any]]) -> list[Any]:
    """Return the held-out values of a parameter. A share takes those with the smallest hashes; one value remains."""
    if name not in values:
        raise UsageError(f"{path}: held_out.{name} is no parameter; there are: {', '.join(values)}")
    known = values[name]
    if isinstance(chosen, int | float):
        if not 0 <= chosen < 1:
            raise UsageError(f"{path}: held_out.{name}: a share is from 0 to below 1, not {chosen:g}")
        ranked = sorted(known, key=lambda value: hashlib.sha256(f"{name}/{_key(value)}".encode()).digest())
        return ranked[: min(math.ceil(chosen * len(known)), len(known) - 1)]
    keys = set(map(_key, known))
    if unknown := [value for value in chosen if _key(value) not in keys]:
        raise UsageError(f"{path}: held_out.{name}: {unknown[0]!r} is no value of it", hint=f"such as {known[0]!r}")
    return list(chosen)


def _list_parameters(path: Path, template: Mapping[str, Any], values: Mapping[str, list[Any]]) -> list[str]:
    names = list(dict.fromkeys(match[1] for match in _find_placeholders(template)))
    if unknown := [name for name in names if name not in values]:
        hint = f"there are: {', '.join(values)}"
        raise UsageError(f"{path}: template {template.get('id')}: {{{unknown[0]}}} is no parameter", hint=hint)
    others = (_OPENED.search(PLACEHOLDER.sub("", text)) for text in list_leaves(template) if isinstance(text, str))
    if broken := next((match for match in others if match and match[1] in values), None):
        raise UsageError(
            f"{path}: template {template.get('id')}: a {{ before {broken[1]} begins no placeholder",
            hint=f"{{{broken[1]}}}, or {{{broken[1]}.COLUMN}}, without spaces",
        )
    return names


def _find_placeholders(value: Any) -> Iterator[re.Match[str]]:
    for text in list_leaves(value):
        if isinstance(text, str):
            yield from PLACEHOLDER.finditer(text)


def _fill_task(path: Path, template: Mapping[str, Any], assigned: Mapping[str, Any]) -> Task:
    """Return one task; its parameters are fields of it, for checks and experts."""
    record: dict[str, Any] = {**assigned, **_fill(path, dict(template), assigned), TEMPLATE: dict(template)}
    name = str(template.get("id", ""))
    if name and not PLACEHOLDER.search(name):
        words = (value.values() if isinstance(value, Mapping) else (value,) for value in assigned.values())
        slugs = (re.sub(r"\W+", "-", " ".join(map(str, given))).strip("-").lower() for given in words)
        record["id"] = "-".join([name, *slugs])
    try:
        return read_task(record)
    except BadTaskError as error:
        raise UsageError(f"{path}: template {name or '(without an id)'}: {error.with_advice}") from None


def _fill(path: Path, value: Any, assigned: Mapping[str, Any]) -> Any:
    """Return a value with its placeholders filled in; a text that is one placeholder keeps the type of its value."""
    if isinstance(value, dict):
        return {name: _fill(path, one, assigned) for name, one in value.items()}
    if isinstance(value, list):
        return [_fill(path, one, assigned) for one in value]
    if not isinstance(value, str):
        return value
    if match := PLACEHOLDER.fullmatch(value):
        return _look_up(path, match, assigned)
    return PLACEHOLDER.sub(lambda match: _write(path, match, _look_up(path, match, assigned)), value)


def _write(path: Path, match: re.Match[str], value: Any) -> str:
    if value is None or isinstance(value, bool | Mapping | list):  # unquoted, YAML's `no` is false and `~` is nothing
        hint = "quote it, or name a column as {NAME.COLUMN}"
        raise UsageError(f"{path}: {match[0]}: {value!r} can't be a part of a text", hint=hint)
    return str(value)


def _look_up(path: Path, match: re.Match[str], assigned: Mapping[str, Any]) -> Any:
    value, column = assigned[match[1]], match[2]
    if column is None:
        return value
    if not isinstance(value, Mapping) or column not in value:
        columns = ", ".join(value) if isinstance(value, Mapping) else f"none, it is {value!r}"
        raise UsageError(f"{path}: {match[0]}: there is no column {column}", hint=f"the columns are: {columns}")
    return value[column]


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
