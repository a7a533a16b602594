"""Validation of task files: the reason for each invalid line, statistics of the valid ones, and known editions."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.scoring.registry import reward_fields
from webgym_cli.tasks.convert import iter_records
from webgym_cli.tasks.files import IMAGES, UPLOADS, place_files, require_files
from webgym_cli.tasks.format import read_task
from webgym_cli.tasks.registry import BadLine, BadTaskError
from webgym_cli.tasks.source import fingerprint, hash_text, index_tasks
from webgym_cli.util.json_values import as_list
from webgym_cli.util.optional import when
from webgym_cli.util.urls import site_of

# Digest of the tasks as `webgym tasks convert` makes them -> the edition of a benchmark, whose name stands for several.
EDITIONS = {
    "c9a5d9a74e963584": "WebVoyager, the original 643 tasks (MinorJerry/WebVoyager)",
    "f16d34120954d5e1": "WebVoyager, 595 tasks with renewed dates (microsoft/fara, 2025-08-31)",
    "a47747e53ebff424": "WebVoyager, 595 tasks with renewed dates (allenai/molmoweb)",
    "7f9700561577aa5b": "WebVoyager, 590 tasks with renewed dates (magnitudedev/webvoyager)",
    "f209231f44440f4e": "Online-Mind2Web, 300 tasks (microsoft/fara, 2025-06-04)",
    "ecc499a5740a15d1": "Online-Mind2Web, 300 tasks (allenai/molmoweb)",
    "203117f8f3f6bca7": "WebArena, 812 tasks (web-arena-x/webarena)",
    "465cccf3f8387630": "WebArena-Lite, 165 tasks (THUDM/VisualAgentBench)",
    "8abeb987cec93ff9": "WebArena-Verified, 812 tasks (ServiceNow/webarena-verified)",
    "738863fc625d7aac": "WebArena-Verified, the 258 hard tasks (ServiceNow/webarena-verified)",
    "52eddfb8c5941fdf": "WebChoreArena, 532 tasks (WebChoreArena/WebChoreArena)",
    "ac1d276db1e046d1": "DeepShop, 150 tasks (allenai/molmoweb)",
    "6bc5155f399a3a09": "Odysseys, 200 tasks (allenai/molmoweb)",
}


@dataclass(slots=True)
class FileReport:
    """Statistics of one file."""

    file: str
    tasks: int = 0
    """Valid lines, including duplicates."""
    bad_lines: int = 0
    duplicates: int = 0
    """Duplicates of earlier tasks in this file, which count once."""
    in_earlier_files: int = 0
    """Tasks that ask for the same as one of a file checked before: a test set must not contain training tasks."""
    bands: Counter[str] = field(default_factory=Counter)
    environments: Counter[str] = field(default_factory=Counter)
    rubrics: int = 0
    sites: set[int] = field(default_factory=set)
    """Hashes of the tasks' sites: their names, or those of the URLs."""
    keys: set[str] = field(default_factory=set)
    """Keys of the tasks, without duplicates."""

    def to_json(self) -> dict[str, Any]:
        """Return it as data."""
        digest = digest_keys(self.keys)
        return {
            "event": "checked",
            "file": self.file,
            "tasks": self.tasks,
            "bad_lines": self.bad_lines,
            "digest": digest,
            "edition": EDITIONS.get(digest, ""),
            "duplicates": self.duplicates,
            "in_earlier_files": self.in_earlier_files,
            "by_band": dict(sorted(self.bands.items())),
            "by_environment": dict(sorted(self.environments.items())),
            "sites": len(self.sites),
            "rubrics": self.rubrics,
        }


@dataclass(slots=True)
class Checker:
    """Checks files one after another and finds duplicates across them."""

    settings: Settings = field(default_factory=Settings)
    """Their `rollout.file_folders` may contain the files of tasks."""
    _earlier: set[int] = field(default_factory=set)

    def check(self, file: str, lines: Iterable[bytes], report: FileReport) -> Iterator[BadLine]:
        """Yield the invalid lines of a file and update its report."""
        here: set[int] = set()
        settings = self.settings.with_changes(tasks={"train": file, "test": None})
        for number, read in iter_records(lines):
            try:
                task = self._take(read(), report, here)
                if Path(file).exists():  # what comes from stdin has no folder
                    _check_files(settings, place_files(task, Path(file).parent))
            except BadTaskError as error:
                report.bad_lines += 1
                yield BadLine(file, number, error.with_advice)
        self._earlier |= here

    def _take(self, value: dict[str, Any], report: FileReport, here: set[int]) -> Task:
        task = read_task(value)
        content, question = fingerprint(task), _hash_question(task)
        report.tasks += 1
        report.duplicates += content in here
        report.in_earlier_files += question in self._earlier and content not in here
        if content not in here:
            report.keys.add(place_files(task, Path(report.file).parent).key)
        here |= {content, question}
        report.bands[str(task.band)] += 1
        report.environments[task.environment] += 1
        report.rubrics += bool(task.rubric)
        if site := task.site or site_of(task.start_url):
            report.sites.add(hash_text(site))
        return task


def _hash_question(task: Task) -> int:
    """Return a hash that is equal for tasks that ask for the same, whatever else their records have.

    Published questions have their split and number in a field of their own, and copies differ in case and spaces.
    """
    if task.start_url or task.check or not task.instruction:
        return fingerprint(task)
    words = " ".join(task.instruction.casefold().split())
    answers = [str(answer).casefold().strip() for answer in as_list(reward_fields(task).get("answer"))]
    return hash_text(json.dumps([words, answers, task.extra.get(IMAGES)]))


def _check_files(settings: Settings, task: Task) -> None:
    """Raise `BadTaskError` for a file or folder of a task that a rollout would refuse."""
    try:
        for name in (UPLOADS, IMAGES):
            require_files(settings, [task], name)
    except UsageError as error:
        raise BadTaskError(str(error).removeprefix(f"task {task.id}: "), error.hint or "") from None


def digest_keys(keys: Iterable[str]) -> str:
    """Return 16 hex digits of the SHA-256 of tasks by their keys, equal in any order."""
    return hashlib.sha256("\n".join(sorted(set(keys))).encode()).hexdigest()[:16]


def describe_edition(tasks: Iterable[Task]) -> str:
    """Return the digest of tasks, without duplicates as a run has them, and their edition if it is known."""
    indexed = index_tasks("", tasks)
    digest = digest_keys(task.key for task in indexed.read(range(len(indexed))))
    return f"digest {digest}{when(digest in EDITIONS, f': {EDITIONS.get(digest)}')}"
