"""Preference pairs for DPO: responses of a success and of a failure of the same task to an identical prompt.

The index finds responses whose prompts may be equal: same instruction, screenshot, previous screenshots and kinds of
actions. Only these trajectories are read, and a pair requires equal prompts: nearly always the first step, later ones
if both episodes took the same path until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from webgym_cli.agent.prompt import render_step
from webgym_cli.config.model import Settings
from webgym_cli.prepare.sft.convert import Example, build_reply, build_step_sample, find_step_problem
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.store.buffer import LineRef
from webgym_cli.store.index.query import LINE_REF, Index

# Columns are compared by 64-bit hashes, so that a million steps fit into the index's memory. The order depends only on
# md5, which is the same in all versions of DuckDB.
_CANDIDATES = """
WITH judged AS MATERIALIZED (
    SELECT row_number() OVER () AS number, id, split, iteration, task_key, success, hash(task_key, split) AS task,
        hash(instruction) AS instruction, {place} AS place
    FROM trajectories WHERE {where} AND success IS NOT NULL
), walked AS (
    SELECT number, task, instruction, success, step, hash(screenshot) AS seen, hash(response_digest) AS reply,
        md5_number(? || '/' || id || '/' || step) AS priority,
        bit_xor(hash(step, screenshot, action)) OVER (
            PARTITION BY number ORDER BY step ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS way
    FROM judged JOIN steps ON steps.trajectory = id AND steps.split = judged.split
        AND steps.iteration = judged.iteration
), replies AS (
    SELECT hash(task, instruction, step, seen, way) AS page, success, reply, any_value(task) AS task,
        any_value(step) AS step, min(priority) AS priority, arg_min(number, priority) AS number
    FROM walked GROUP BY ALL
), drawn AS (
    SELECT * FROM replies
    WHERE page IN (SELECT page FROM replies GROUP BY page HAVING bool_or(success) AND NOT bool_and(success))
    QUALIFY row_number() OVER (PARTITION BY page, success ORDER BY priority) <= ?
), candidates AS (
    SELECT wanted.number AS wanted, unwanted.number AS unwanted, wanted.step AS step,
        md5(wanted.priority || '/' || unwanted.priority) AS turn
    FROM drawn AS wanted JOIN drawn AS unwanted ON wanted.page = unwanted.page AND wanted.reply <> unwanted.reply
    WHERE wanted.success AND NOT unwanted.success
    QUALIFY row_number() OVER (PARTITION BY wanted.task ORDER BY turn) <= ?
)
SELECT chosen.task_key AS task, chosen.split AS split, step, chosen.place AS wanted, rejected.place AS unwanted
FROM candidates JOIN judged AS chosen ON chosen.number = wanted JOIN judged AS rejected ON rejected.number = unwanted
ORDER BY chosen.task_key, chosen.split, turn
"""
# Number of candidates read per wanted pair of a task.
TRIES = 8

# Reads a trajectory; returns None for a damaged one, which is reported elsewhere.
Reader = Callable[[LineRef], Trajectory | None]


def sample_pairs(
    index: Index,
    read: Reader,
    settings: Settings,
    where: str,
    values: Sequence[Any],
    *,
    seed: int,
    per_task: int,
) -> Iterator[Example]:
    """Yield pairs of each task from the judged trajectories that match a condition, in an order given by the seed.

    `per_task`: maximum number of pairs per task.
    """
    # Neither a task nor the buffer is held in memory: candidates are read until the task has enough pairs.
    sql = _CANDIDATES.format(where=where, place=LINE_REF)
    rows = index.rows(sql, [*values, str(seed), per_task, TRIES * per_task])
    task, seen = None, set[tuple[str, str, str]]()
    for row in rows:
        if (row["task"], row["split"]) != task:
            task, seen = (row["task"], row["split"]), set()
        if len(seen) >= per_task:
            continue
        pair = _pair(read(LineRef(**row["wanted"])), read(LineRef(**row["unwanted"])), row["step"], settings)
        if pair is not None and pair[0] not in seen:
            seen.add(pair[0])
            yield pair[1]


def _pair(
    wanted: Trajectory | None, unwanted: Trajectory | None, step: int, settings: Settings
) -> tuple[tuple[str, str, str], Example] | None:
    """Return a pair and its identity; None if the two steps are no pair."""
    if wanted is None or unwanted is None:
        return None
    fit = find_step_problem(wanted.steps[step], settings, wanted=True) is None
    if not fit or find_step_problem(unwanted.steps[step], settings, wanted=False) is not None:
        return None
    prompt = render_step(wanted, step).digest
    chosen, rejected = (build_reply(trajectory, step).content for trajectory in (wanted, unwanted))
    if prompt != render_step(unwanted, step).digest or chosen == rejected:
        return None
    return (prompt, chosen, rejected), Example(build_step_sample(wanted, step), rejected=rejected)
