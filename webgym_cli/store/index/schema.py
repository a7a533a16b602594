"""Schema of the index tables: the queryable fields of trajectories, steps and judgements. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeVar

from webgym_cli.records.base import moment_of
from webgym_cli.records.judgement import Judgement, environment_score, scored_by_environment
from webgym_cli.records.series import name_series
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Step, Trajectory
from webgym_cli.records.usage import TokenUsage
from webgym_cli.util.optional import map_known
from webgym_cli.util.urls import site_of

# Version of the tables; an index of another version is rebuilt.
FORMAT = 12

Row = dict[str, Any]
RecordT = TypeVar("RecordT")
# Column name -> its type, and a function from record to value. docs/data-formats.md describes the columns.
Columns = Mapping[str, tuple[str, Callable[[RecordT], Any]]]

# DuckDB's names of the types: a reader of an index that is up to date imports no Arrow. `arrow` has those of the files.
TEXT, INT, LONG, FLOAT, REAL, BOOL = "VARCHAR", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN"
# UTC without a time zone: for zoned timestamps DuckDB's Python API needs another library.
MOMENT = "TIMESTAMP"
REALS, COUNTS = "MAP(VARCHAR, DOUBLE)", "MAP(VARCHAR, INTEGER)"
# The fields of `records.sampling.Sampling`.
SAMPLING = "STRUCT(temperature DOUBLE, top_k INTEGER, top_p DOUBLE, min_p DOUBLE, logprobs VARCHAR)"
# The fields of `records.usage.TokenUsage` by model.
MODEL_TOKENS = "MAP(VARCHAR, STRUCT(prompt BIGINT, cached BIGINT, completion BIGINT))"


def _moment(text: str) -> datetime:
    return moment_of(text).replace(tzinfo=None)


def _dump_fields(task: Task) -> str:
    """Return the fields of a task that have no column of their own, as one JSON object."""
    named = {"role": task.role, "check": task.check, "reference_answer": task.reference_answer}
    return json.dumps({**task.extra, **{name: value for name, value in named.items() if value}}, ensure_ascii=False)


def _votes(judgement: Judgement) -> Iterator[tuple[float, int]]:
    """Yield, for each voted question, the share of votes for the decision and the number of votes."""
    for verdict in (judgement.claims, *judgement.facts, judgement.reference):
        if verdict is not None and verdict.votes:
            yield sum(vote is verdict.passed for vote in verdict.votes) / len(verdict.votes), len(verdict.votes)


def _count(tokens: Callable[[RecordT], TokenUsage]) -> Columns[RecordT]:
    """Return the columns of token counts."""
    return {
        "prompt_tokens": (LONG, lambda one: tokens(one).prompt),
        "cached_tokens": (LONG, lambda one: tokens(one).cached),
        "completion_tokens": (LONG, lambda one: tokens(one).completion),
    }


# One row per stored trajectory, as written.
TRAJECTORY: Columns[Trajectory] = {
    "id": (TEXT, lambda one: one.id),
    "episode": (TEXT, lambda one: one.episode),
    "split": (TEXT, lambda one: one.split.value),
    "iteration": (INT, lambda one: one.iteration),
    "attempt": (INT, lambda one: one.attempt),
    "task": (TEXT, lambda one: one.task.id),
    "task_key": (TEXT, lambda one: one.task.key),  # equal for equal tasks in all runs
    "environment": (TEXT, lambda one: one.task.environment),
    "site": (TEXT, lambda one: one.task.site or site_of(one.task.start_url) or one.task.environment),
    "band": (TEXT, lambda one: one.task.band.value),
    "difficulty": (INT, lambda one: one.task.difficulty),
    "instruction": (TEXT, lambda one: one.instruction),
    "task_fields": (TEXT, lambda one: _dump_fields(one.task)),
    "seed": (LONG, lambda one: one.seed),
    "policy": (TEXT, lambda one: one.policy),
    "series": (TEXT, lambda one: name_series(one.policy, one.split.value)),
    "sampling": (SAMPLING, lambda one: one.sampling and one.sampling.model_dump()),  # null if unknown
    "prompt_version": (TEXT, lambda one: str(one.prompt.version)),
    "interaction_mode": (TEXT, lambda one: one.prompt.interaction_mode.value),
    "steps": (INT, lambda one: len(one.steps)),
    "reward": (REAL, lambda one: one.outcome.reward),
    "success_threshold": (REAL, lambda one: one.outcome.success_threshold),
    "reward_extra": (REALS, lambda one: list(one.outcome.extras.items())),
    "tool_calls": (COUNTS, lambda one: list(one.count_calls().items())),
    "stop": (TEXT, lambda one: one.outcome.stop and one.outcome.stop.value),
    "failure": (TEXT, lambda one: one.outcome.failure and one.outcome.failure.value),
    "failure_detail": (TEXT, lambda one: one.outcome.failure_detail),
    "answer": (TEXT, lambda one: one.outcome.answer),
    "environment_reward": (REAL, environment_score),
    "scored_by_environment": (BOOL, scored_by_environment),
    "policy_seconds": (REAL, lambda one: sum(step.policy_seconds for step in one.steps)),
    "environment_seconds": (REAL, lambda one: sum(step.environment_seconds for step in one.steps)),
    "seconds": (REAL, lambda one: one.seconds),
    "cpu_seconds": (REAL, lambda one: one.cpu_seconds),
    "gpu_seconds": (REAL, lambda one: one.gpu_seconds),
    **_count(lambda one: one.tokens),
    "started_at": (MOMENT, lambda one: _moment(one.started_at)),
}
# One row per step.
STEP: Columns[Step] = {
    "step": (INT, lambda one: one.index),
    "url": (TEXT, lambda one: one.observation.url),
    "page_site": (TEXT, lambda one: site_of(one.observation.url)),
    "screenshot": (TEXT, lambda one: one.observation.screenshot and one.observation.screenshot.sha256),
    "width": (INT, lambda one: one.observation.screenshot and one.observation.screenshot.width),
    "height": (INT, lambda one: one.observation.screenshot and one.observation.screenshot.height),
    "loading": (TEXT, lambda one: one.observation.state and one.observation.state.loading),
    "pending": (INT, lambda one: one.observation.state and one.observation.state.pending),
    "console_errors": (INT, lambda one: one.observation.state and one.observation.state.console_errors),
    "status": (INT, lambda one: one.observation.state and one.observation.state.status),
    "action": (TEXT, lambda one: one.action and str(one.action.name)),
    "parse_error": (TEXT, lambda one: one.parse_error and one.parse_error.value),
    "action_error": (TEXT, lambda one: one.action_error),
    "page_changed": (BOOL, lambda one: one.page_changed),
    "response_characters": (INT, lambda one: len(one.response)),
    "response_digest": (TEXT, lambda one: hashlib.sha256(one.response.encode(errors="replace")).hexdigest()[:16]),
    "prompt_tokens": (INT, lambda one: one.generation.prompt_tokens),
    "response_tokens": (INT, lambda one: map_known(len, one.generation.token_ids)),
    "finish_reason": (TEXT, lambda one: one.generation.finish_reason),
    "policy_version": (INT, lambda one: one.generation.policy_version and one.generation.policy_version.number),
    "policy_seconds": (FLOAT, lambda one: one.policy_seconds),
    "environment_seconds": (FLOAT, lambda one: one.environment_seconds),
}
# One row per judgement; a trajectory's newest one by its check is effective, else by a judge, else by an ORM.
JUDGEMENT: Columns[Judgement] = {
    "source": (TEXT, lambda one: one.source),
    "probability": (REAL, lambda one: one.probability),
    "reward": (REAL, lambda one: one.reward),
    "reward_extra": (REALS, lambda one: list(one.extras.items())),
    "success": (BOOL, lambda one: one.success),
    "failure": (TEXT, lambda one: one.failure and one.failure.value),
    "failure_detail": (TEXT, lambda one: one.failure_detail),
    "blocked": (BOOL, lambda one: one.blocked),
    "unavailable": (BOOL, lambda one: one.unavailable),
    "model": (TEXT, lambda one: one.models.get("verdict", "")),
    "models": (INT, lambda one: len({*one.models.values()})),
    "settings_digest": (TEXT, lambda one: one.settings_digest),
    "agreement": (REAL, lambda one: min((share for share, _ in _votes(one)), default=None)),
    "votes": (INT, lambda one: min((count for _, count in _votes(one)), default=None)),
    "seconds": (REAL, lambda one: one.seconds),
    "calls": (INT, lambda one: one.calls),
    **_count(lambda one: one.tokens),
    "model_tokens": (MODEL_TOKENS, lambda one: [(names[0], used.model_dump()) for names, used in one.requests]),
    "judged_at": (MOMENT, lambda one: _moment(one.judged_at)),
}


def build_row(columns: Columns[RecordT], record: RecordT) -> Row:
    """Return the columns of a row that come from the record itself."""
    return {name: value(record) for name, (_, value) in columns.items()}


def _types(columns: Columns[Any]) -> dict[str, str]:
    return {name: kind for name, (kind, _) in columns.items()}


_OWNER = {"trajectory": TEXT, "split": TEXT, "iteration": INT}
# Location of a line: its file relative to the run, its offset, and its length without the line end.
_PLACE = {"file": TEXT, "start": LONG, "size": LONG}
# Table -> column -> its type.
TABLES: dict[str, dict[str, str]] = {
    "trajectories": {**_types(TRAJECTORY), **_PLACE},
    "steps": {**_OWNER, **_types(STEP)},
    "judgements": {**_OWNER, **_types(JUDGEMENT), **_PLACE},
    # one row per unreadable line
    "damage": {"split": TEXT, "iteration": INT, **_PLACE, "reason": TEXT},
}
