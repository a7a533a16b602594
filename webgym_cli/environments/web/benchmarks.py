"""Conversion of published benchmarks of the open web, from their local files, to tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.tasks.convert import convert_records, parse_start, read_named
from webgym_cli.tasks.encryption import CANARY, ENCRYPTED
from webgym_cli.tasks.format import LEVELS
from webgym_cli.tasks.registry import BadTaskError, ConversionResult, TaskFormat, suggest_format
from webgym_cli.util.json_values import as_text, parse_nested
from webgym_cli.util.optional import when

# DeepShop's parts of a query; an absent one counts as met.
_PARTS = ("attribute", "filter", "sort")


@dataclass(frozen=True, slots=True)
class BenchmarkFormat:
    """Names of the fields of one benchmark's records."""

    fields: Mapping[str, str]
    """Field of a task -> theirs. Without `start_url` its tasks name no page, `--site start=URL` gives one."""
    answer: str = ""
    """Field of the reference answer, which may be secret."""
    parts: tuple[str, ...] = ()
    """Fields that are facts to check, where they are given."""
    encrypted: bool = False
    """Whether instruction and answer are encrypted, and stay so."""
    rubrics: str = ""
    """Field of the facts by name, each a requirement with how to verify it."""


def _convert(name: str, of: BenchmarkFormat, path: Path, settings: Settings, sites: Sequence[str]) -> ConversionResult:
    """Return the tasks of a file. Raises `UsageError` for a missing or superfluous start page."""
    start = parse_start(sites)
    if not start and "start_url" not in of.fields:
        raise UsageError(f"{name}: its tasks name no start page", hint="--site start=https://www.bing.com")
    if start and "start_url" in of.fields:
        raise UsageError(f"--site: the tasks of {name} name their pages", hint="leave --site out")
    return convert_records(path, lambda record, _: _read_record(name, of, record, start))


def _read_record(name: str, of: BenchmarkFormat, record: Mapping[str, Any], start: str) -> Task:
    for field in of.fields.values():
        if record.get(field) in (None, ""):
            raise BadTaskError(
                f"{field}: is missing, this is no record of {name}",
                when(field not in record, suggest_format(frozenset(record))),
            )
    level = str(record.get("level", record.get("difficulty"))).casefold()
    own = {of.answer, *of.fields.values(), *Task.model_fields}
    texts = {"instruction": record[of.fields["instruction"]], "reference_answer": _read_answer(of, record)}
    if of.encrypted:
        texts = {ours: text and f"{ENCRYPTED}{text}" for ours, text in texts.items()}
    return read_named(
        {
            "start_url": start,
            **{key: value for key, value in record.items() if key not in own},
            **{ours: record[theirs] for ours, theirs in of.fields.items()},
            "environment": "web",
            "benchmark": name,
            "difficulty": LEVELS.get(level, 1),
            "rubric": _list_facts(of, record),
            **texts,
        },
        of.fields,
    )


def _read_answer(of: BenchmarkFormat, record: Mapping[str, Any]) -> str | None:
    # without a name it would be the column of row numbers that pandas writes
    answer = record.get(of.answer) if of.answer else None
    if answer in (None, "", "nan"):  # a table of pandas has nan where the answer is kept secret
        return None
    return as_text(answer)


def _list_facts(of: BenchmarkFormat, record: Mapping[str, Any]) -> list[str]:
    if of.rubrics:
        try:
            given = parse_nested(record[of.rubrics]).values()
            # Parquet has every record's names in each, as null
            return [f"{one['requirement']} ({one['verification']})" for one in given if one is not None]
        except (KeyError, TypeError, AttributeError):
            raise BadTaskError(f"{of.rubrics}: no facts by name, each with requirement and verification") from None
    parts = {part: str(record.get(part)) for part in of.parts}
    # the published file has one part that is only "**"
    return [f"{part}: {text}" for part, text in parts.items() if text != "None" and any(map(str.isalnum, text))]


def _refuse(name: str, path: Path, settings: Settings, sites: Sequence[str]) -> ConversionResult:
    raise UsageError(
        f"{name}: its terms forbid to publish its tasks in plain text or to train on them: no task file is written",
        hint="webgym tasks convert --help names the others",
    )


def _make_format(name: str, of: BenchmarkFormat, *own: str) -> TaskFormat:
    """Return a format. `own`: fields by which its records are known, beside those that become a task's."""
    return TaskFormat(partial(_convert, name, of), frozenset({*of.fields.values(), *own}))


_VOYAGER = {"id": "id", "instruction": "ques", "start_url": "web"}
_TAIL = {"id": "id", "instruction": "task_summary"}
_ASSISTANT = {"id": "id", "instruction": "task"}
_TASKS_OM2W = {"id": "task_id", "instruction": "confirmed_task", "start_url": "website"}
WEBVOYAGER = _make_format("webvoyager", BenchmarkFormat(_VOYAGER))
OM2W = _make_format("online-mind2web", BenchmarkFormat(_TASKS_OM2W))
DEEPSHOP = _make_format("deepshop", BenchmarkFormat(_VOYAGER, parts=_PARTS), *_PARTS)
WEBTAILBENCH = _make_format("webtailbench", BenchmarkFormat(_TAIL))
ODYSSEYS = _make_format("odysseys", BenchmarkFormat(_TASKS_OM2W, rubrics="rubrics"), "rubrics")
ASSISTANTBENCH = _make_format("assistantbench", BenchmarkFormat(_ASSISTANT, answer="answer"), "answer", "gold_url")
# Their authors ask that the tasks never stand in plain text where a crawler or a training may read them.
_COMP = {"instruction": "problem", CANARY: CANARY}
BROWSECOMP = _make_format("browsecomp", BenchmarkFormat(_COMP, answer="answer", encrypted=True))
BU_BENCH = TaskFormat(partial(_refuse, "bu-bench"))
