"""Success, steps, failures and verdicts by policy version, aggregated in the index without loading trajectories."""

from __future__ import annotations

from typing import Any

from webgym_cli.records.series import DEMONSTRATIONS
from webgym_cli.records.statistics import known_interval, ratio
from webgym_cli.store.index.query import Index

# The run's own series in display order; those of other servers follow.
SERIES = ("test", "train", DEMONSTRATIONS)


# Success and steps of each iteration of a series, over all difficulty bands (a band of NULL) and in each. A case counts
# once, with the mean of its episodes: of the test split a task and seed, whose repeats are no independent trials
# (`rollout.test_repeats`); of the training split an episode. Steps are means over the trajectories that did not fail,
# seconds over all of them.
_POINTS = f"""
WITH cases AS (
    SELECT *, 1 / nullif(count(success) OVER (PARTITION BY series, iteration, task_key, seed,
        CASE WHEN split = 'train' THEN id END), 0) AS weight
    FROM trajectories
)
SELECT series, iteration, CASE WHEN grouping(band) = 0 THEN band END AS band, count(*) AS trajectories,
    count(success) AS scored, count(*) FILTER (WHERE success) AS successes, count(failure) AS failures,
    round(avg(steps) FILTER (WHERE failure IS NULL), 3) AS mean_steps,
    round(avg(steps) FILTER (WHERE success), 3) AS mean_steps_solved,
    round(avg(policy_seconds), 3) AS policy_seconds, round(avg(environment_seconds), 3) AS environment_seconds,
    coalesce(sum(weight) FILTER (WHERE success), 0) AS solved_cases,
    coalesce(sum(weight) FILTER (WHERE success IS NOT NULL), 0) AS scored_cases
FROM cases GROUP BY GROUPING SETS ((series, iteration), (series, iteration, band))
ORDER BY nullif(list_position({list(SERIES)}, series), 0) NULLS LAST, series, iteration, grouping(band) DESC,
    list_position(['easy', 'medium', 'hard'], band)
"""

_KINDS = """
SELECT failure AS kind, count(*) AS count
FROM trajectories WHERE failure IS NOT NULL GROUP BY failure ORDER BY count DESC, kind
"""

_STOPS = """
SELECT stop, count(*) AS count, count(*) FILTER (WHERE success) AS successes
FROM trajectories WHERE failure IS NULL GROUP BY stop ORDER BY count DESC, stop
"""

# The newest judgements of an iteration that are a judge's verdicts: `agreement` is the mean share of votes that went
# with the decision, `both` the number of trajectories that the environment scored too.
_JUDGED = """
SELECT split, iteration, count(*) AS judged, round(avg(agreement), 4) AS agreement,
    count(*) FILTER (WHERE agreement >= 1) AS unanimous, count(agreement) AS voted,
    count(environment_reward) AS both,
    count(*) FILTER (WHERE judged = (environment_reward >= success_threshold)) AS same,
    round(same / nullif("both", 0), 4) AS same_rate
FROM trajectories WHERE judged IS NOT NULL AND judged_by = 'judge'
GROUP BY split, iteration ORDER BY split = 'train', iteration
"""


def read_points(index: Index) -> list[dict[str, Any]]:
    """Return success and steps by series, iteration and band; a band of None is all of them. Raises `StoreError`.

    `success_rate` is `solved_cases` of `scored_cases`, None without a scored case; `interval` is Wilson's, 95 %.
    """
    points = list(index.rows(_POINTS))
    for row in points:
        solved, scored = round(row["solved_cases"], 4), round(row["scored_cases"])
        row |= {"scored_cases": scored, "solved_cases": solved}
        row |= {"success_rate": ratio(solved, scored), "interval": known_interval(solved, scored)}
    return points


def read_failures(index: Index) -> dict[str, dict[str, Any]]:
    """Return the number of failures `by_kind`, and of the others by `stops`, the reason why they ended."""
    return {
        "by_kind": {row["kind"]: row["count"] for row in index.rows(_KINDS)},
        "stops": {
            str(row["stop"]): {"count": row["count"], "successes": row["successes"]} for row in index.rows(_STOPS)
        },
    }


def read_verdicts(index: Index) -> list[dict[str, Any]]:
    """Return the judge's verdicts by split and iteration. Raises `StoreError`."""
    return list(index.rows(_JUDGED))
