"""Plan of a dataset: eligible steps, reasons for the others, and the quota of each iteration.

Candidates are selected by SQL: only sampled rows are fetched, and no trajectory is read. They are two tables in the
index's memory, which spill to its temporary folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.errors import MissingStageError, WebGymError
from webgym_cli.prepare.sft.filters import FilterPipeline, build_filters, build_reason_sql
from webgym_cli.prepare.sft.sampling import UNIFORM, compute_quotas, position_key_sql, priority_sql
from webgym_cli.records.batch import BatchSelection
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import LineRef
from webgym_cli.store.checkpoints import version
from webgym_cli.store.index.query import LINE_REF, Index
from webgym_cli.store.run import RunDir

_TRAJECTORIES = """
CREATE OR REPLACE TABLE prepare_trajectories AS
SELECT row_number() OVER (ORDER BY iteration, started_at, id) AS number, id, episode AS sampling_key, task, steps,
    failure, {reason} AS reason, file, start, size, verdict_file, verdict_start, verdict_size
FROM trajectories
WHERE split = 'train' AND iteration IN ({read})
"""
_STEPS = """
CREATE OR REPLACE TABLE prepare_steps AS
WITH looked_at AS (
    SELECT number, task, iteration, step, {priority} AS priority, {reason} AS reason,
        md5_number(concat(id, '/', step)) AS identity,
        md5_number(concat_ws('/', task, screenshot, response_digest)) AS shown
    FROM steps
    JOIN (SELECT number, id, sampling_key, task FROM prepare_trajectories WHERE reason IS NULL) ON id = trajectory
    WHERE split = 'train' AND iteration IN ({read})
){layers}
SELECT number, step, iteration, reason, priority, identity, {key} AS key FROM {last}
"""
_LAYER = """, {name} AS (
    SELECT * REPLACE (coalesce(reason, CASE WHEN {predicate} THEN '{name}' END) AS reason) FROM {before}
)"""
_IN_TIME = """, in_time AS (
    SELECT *, count(*) OVER (PARTITION BY reason IS NULL) AS count,
        row_number() OVER (PARTITION BY reason IS NULL ORDER BY number, step) AS position
    FROM {before}
)"""
_PAGE = """
SELECT {place} AS place, iteration, step FROM (
    SELECT * FROM prepare_steps WHERE reason IS NULL AND {share} ORDER BY key, priority, identity LIMIT ? OFFSET ?
) JOIN prepare_trajectories USING (number)
ORDER BY key, priority, identity
"""
# Fields of `CandidateCounts`. XOR: independent of the order of rows.
_COUNT_TRAJECTORIES = """
SELECT count(*) AS trajectories, coalesce(sum(steps), 0)::BIGINT AS steps, histogram(reason) AS dropped_trajectories,
    coalesce(sum(steps) FILTER (reason IS NOT NULL), 0)::BIGINT AS steps_of_dropped_trajectories,
    histogram(failure) FILTER (reason = 'failure') AS failures
FROM prepare_trajectories
"""
_COUNT_STEPS = """
SELECT histogram(reason) AS dropped_steps, histogram(iteration) FILTER (reason IS NULL) AS eligible,
    bit_xor(identity) FILTER (reason IS NULL) AS fingerprint
FROM prepare_steps
"""


@dataclass(frozen=True, slots=True)
class StepCandidate:
    """An eligible step."""

    place: LineRef
    iteration: int
    step: int
    """Index of the step, from 0."""


@dataclass(frozen=True, slots=True)
class CandidateCounts:
    """Number of candidates, and of what each filter dropped."""

    trajectories: int
    steps: int
    """Steps of all trajectories that were read."""
    eligible: dict[int, int]
    """Eligible steps by iteration, including iterations with 0."""
    dropped_trajectories: dict[str, int]
    """Dropped trajectories by filter, in pipeline order."""
    steps_of_dropped_trajectories: int
    dropped_steps: dict[str, int]
    """Dropped steps of the remaining trajectories, likewise."""
    failures: dict[str, int]
    """Infrastructure failures among the dropped trajectories, by kind."""
    fingerprint: str
    """XOR of the digests of all eligible steps' ids, independent of their order and files."""


class CandidateTable:
    """Eligible steps of some iterations, within an open index. An index contains one such table, the newest."""

    def __init__(self, index: Index, settings: Settings, iteration: int, read: Sequence[int]) -> None:
        """Select the steps. `iteration`: to train on. `read`: iterations to sample from. Raises `StoreError`."""
        self._index = index
        self._read = read
        self._filters = build_filters(settings)
        self.by_position = settings.algorithm_config.weighting == "position"
        """Whether each step has a weight of its own, so that all steps form one share."""
        numbers = ", ".join(map(str, read))
        expression, parameters = build_reason_sql(self._filters.trajectories)
        index.one(_TRAJECTORIES.format(reason=expression, read=numbers), parameters)
        # by episode, not by attempt: a rollout that was interrupted gives the same samples
        order = priority_sql(f"concat('{settings.sampling_seed}/{iteration}/', sampling_key, '/', step)")
        power = settings.algorithm_config.recency_bias_power if self.by_position else None
        index.one(*_steps_statement(self._filters, order, numbers, power))

    def counts(self) -> CandidateCounts:
        """Count by filter and by iteration."""
        row = self._index.one(_COUNT_TRAJECTORIES) | self._index.one(_COUNT_STEPS)
        filters = {
            "dropped_trajectories": self._filters.trajectories,
            "dropped_steps": (*self._filters.steps, *self._filters.together),
        }
        for name, of in filters.items():
            row[name] = {**dict.fromkeys((item.drop.value for item in of), 0), **(row[name] or {})}
        row["eligible"] = {**dict.fromkeys(self._read, 0), **(row["eligible"] or {})}
        row["failures"] = dict(sorted((row["failures"] or {}).items()))
        return CandidateCounts(**row | {"fingerprint": f"{row['fingerprint'] or 0:032x}"})

    def count_first(self, count: int) -> dict[int, int]:
        """Return how many of the first `count` steps in sampling order by position belong to each iteration."""
        chosen = "SELECT iteration FROM prepare_steps WHERE reason IS NULL ORDER BY key, priority, identity LIMIT ?"
        rows = self._index.rows(f"SELECT iteration, count(*) AS count FROM ({chosen}) GROUP BY iteration", [count])
        return {**dict.fromkeys(self._read, 0), **{row["iteration"]: row["count"] for row in rows}}

    def draw(self, iteration: int, limit: int) -> Iterator[StepCandidate]:
        """Yield the steps in sampling order, of one iteration or, by position, of all. `limit`: first page size."""
        share = "true" if self.by_position else f"iteration = {iteration:d}"
        sql, offset = _PAGE.format(share=share, place=LINE_REF), 0
        while page := list(self._index.rows(sql, [limit, offset])):
            yield from (StepCandidate(LineRef(**row.pop("place")), **row) for row in page)
            # Pages double, so n steps take O(log n) queries.
            offset += limit
            limit = max(limit, offset)


def _steps_statement(filters: FilterPipeline, order: str, read: str, power: float | None) -> tuple[str, list[Any]]:
    """Return the statement that creates the table of steps. `power`: of the weights by position; None: by iteration."""
    expression, parameters = build_reason_sql(filters.steps)
    layers, last = "", "looked_at"
    for item in filters.together:
        layers += _LAYER.format(name=item.drop.value, predicate=item.predicate, before=last)
        last = item.drop.value
        parameters += item.parameters
    if power is not None:
        layers, last = layers + _IN_TIME.format(before=last), "in_time"
    key = UNIFORM if power is None else position_key_sql(power)
    statement = _STEPS.format(priority=order, reason=expression, read=read, layers=layers, key=key, last=last)
    return statement, parameters


# Settings of the sampling, other than those of the candidates.
DRAW_KEYS = (
    "filter_retokenized",
    "positive_samples_to_train",
    "weighting",
    "recency_bias_power",
    "val_split_ratio",
    "do_eval",
    "seed",
    "cutoff_len",
    "min_token_length",
)


@dataclass(frozen=True, slots=True)
class PreparePlan:
    """Plan of `prepare`."""

    iteration: int
    read: tuple[int, ...]
    counts: CandidateCounts
    quotas: dict[int, int]
    """Steps to sample by iteration; with weights by position the result may differ if steps are dropped."""
    damaged: tuple[str, ...]
    """Unreadable lines with file, byte offset and reason."""
    pool: CandidateTable = field(repr=False, compare=False)
    """Provides the steps while its index is open."""
    settings: Settings = field(repr=False, compare=False)

    @property
    def eligible(self) -> int:
        """Number of eligible steps."""
        return sum(self.counts.eligible.values())

    @property
    def shares(self) -> dict[int, int]:
        """Eligible steps by the iteration that they count for; with weights by position, all count for the last one."""
        return {self.read[-1]: self.eligible} if self.pool.by_position else dict(self.counts.eligible)

    def digest(self) -> str:
        """Return the SHA-256 of everything that determines the samples."""
        settings = self.settings
        drawn_by = settings.algorithm_config.model_dump(include=set(DRAW_KEYS), mode="json")
        chosen_by = settings.filters.model_dump(mode="json")
        steps = [sorted(self.counts.eligible.items()), self.counts.fingerprint]
        # Only what affects the sampling: a changed learning rate must not make the dataset stale.
        content = [self.iteration, settings.seed, drawn_by, chosen_by, steps]
        # by their limits screenshots are dropped; datasets of older versions were written without the default ones
        content += filter(None, [settings.image.model_dump(exclude_defaults=True)])
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def to_json(self) -> dict[str, object]:
        """Return the output of `--dry-run`."""
        counts = self.counts
        return {
            "event": "plan",
            "stage": "prepare",
            "iteration": self.iteration,
            "iterations_read": list(self.read),
            "trajectories": counts.trajectories,
            "steps": counts.steps,
            "eligible_steps": self.eligible,
            "samples_by_iteration": {str(key): value for key, value in self.quotas.items()},
            "dropped_trajectories": counts.dropped_trajectories,
            "steps_of_dropped_trajectories": counts.steps_of_dropped_trajectories,
            "dropped_steps": counts.dropped_steps,
            "failures": counts.failures,
            "damaged_lines": list(self.damaged),
        }


def plan_dataset(run: RunDir, settings: Settings, index: Index, selection: BatchSelection | None = None) -> PreparePlan:
    """Return the plan for the run's current iteration. Raises `MissingStageError` without any trajectory.

    `selection`: the new trajectories of the dataset, whose iterations are then read.
    """
    iteration = version(run)
    stored = [number for number in run.list_iterations(Split.TRAIN) if number <= iteration]
    read = stored[-settings.algorithm_config.last_n_iterations :] if selection is None else selection.iterations
    if not read:
        raise MissingStageError(f"{run.root}: no training trajectories", hint=f"webgym rollout {run.root}")
    return build_plan(settings, index, iteration, read)


def preview_dataset(run: RunDir, settings: Settings, index: Index) -> dict[str, object]:
    """Return, as JSON, the plan for a dataset of the newest iterations; empty without any trajectory."""
    read = run.list_iterations(Split.TRAIN)[-settings.algorithm_config.last_n_iterations :]
    return build_plan(settings, index, version(run), read).to_json() if read else {}


def build_plan(settings: Settings, index: Index, iteration: int, read: Sequence[int]) -> PreparePlan:
    """Return the plan for these iterations. Raises `StoreError`."""
    pool = CandidateTable(index, settings, iteration, read)
    counts = pool.counts()
    wanted, power = settings.algorithm_config.positive_samples_to_train, settings.algorithm_config.recency_bias_power
    if pool.by_position:
        shares = counts.eligible if wanted is None else pool.count_first(wanted)
    else:
        shares = compute_quotas(counts.eligible, wanted, power)
    damaged = index.damaged_lines(f"split = 'train' AND iteration IN ({', '.join(map(str, read))})")
    return PreparePlan(
        iteration=iteration,
        read=tuple(read),
        counts=counts,
        quotas=shares,
        damaged=tuple(damaged),
        pool=pool,
        settings=settings,
    )


def refuse_empty(plan: PreparePlan, run: RunDir) -> None:
    """Raise an error with the reasons if nothing is eligible."""
    if not plan.eligible:
        dropped = [*plan.counts.dropped_trajectories.items(), *plan.counts.dropped_steps.items()]
        reasons = ", ".join(f"{count} x {reason}" for reason, count in dropped if count)
        raise WebGymError(
            f"{run.root}: no step is fit for training ({reasons or 'no trajectories'})",
            hint=f"webgym inspect-buffer {run.root}",
        )
