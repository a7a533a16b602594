"""Published editions of benchmarks, by the digest of their tasks: one name stands for several populations."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from webgym_cli.records.task import Task
from webgym_cli.tasks.source import index_tasks
from webgym_cli.util.optional import when

# Digest of the tasks as `webgym tasks convert` makes them -> the edition.
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


def digest_keys(keys: Iterable[str]) -> str:
    """Return 16 hex digits of the SHA-256 of tasks by their keys, equal in any order."""
    return hashlib.sha256("\n".join(sorted(set(keys))).encode()).hexdigest()[:16]


def describe_edition(tasks: Iterable[Task]) -> str:
    """Return the digest of tasks, without duplicates as a run has them, and their edition if it is known."""
    indexed = index_tasks("", tasks)
    digest = digest_keys(task.key for task in indexed.read(range(len(indexed))))
    return f"digest {digest}{when(digest in EDITIONS, f': {EDITIONS.get(digest)}')}"
