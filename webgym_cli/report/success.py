"""Success, steps, failures and verdicts by policy version, aggregated in the index without loading trajectories."""

from __future__ import annotations

from typing import TypedDict, cast

from webgym_cli.records.series import DEMONSTRATIONS
from webgym_cli.records.statistics import known_interval, ratio
from webgym_cli.store.index.query import Index

# The run's own series in display order; those of other servers follow.
SERIES = ("test", "train", DEMONSTRATIONS)


class SuccessPoint(TypedDict):
    """Success and steps of one iteration of a series, over all difficulty bands or in one."""

    series: str
    iteration: int
    band: str | None
    """None: all bands."""
    trajectories: int
    scored: int
    successes: int
    scored_cases: int
    """Cases with a scored trajectory: of the test split tasks with their seed, else trajectories."""
    solved_cases: float
    """Sum over these of the share of their scored trajectories that succeeded."""
    success_rate: float | None
    """`solved_cases` of `scored_cases`; None without a scored trajectory."""
    interval: list[float] | None
    """Wilson, 95 %, of as many trials as there are cases."""
    failures: int
    mean_steps: float | None
    """Over the trajectories that did not fail."""
    mean_steps_solved: float | None
    policy_seconds: float | None
    environment_seconds: float | None


class StopCounts(TypedDict):
    """Number of episodes with one stop reason."""

    count: int
    successes: int


class FailureFacts(TypedDict):
    """Failures by kind, and stop reasons of the other episodes."""

    by_kind: dict[str, int]
    stops: dict[str, StopCounts]


class VerdictFacts(TypedDict):
    """The judge's verdicts on an iteration."""

    split: str
    iteration: int
    judged: int
    agreement: float | None
    """Mean share of votes that went with the decision."""
    unanimous: int
    voted: int
    both: int
    """Trajectories that the environment scored too."""
    same: int
    same_rate: float | None


# A case counts once, with the mean of its episodes: of the test split a task and seed, whose repeats are no independent
# trials (`rollout.test_repeats`); of the training split an episode.
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

_JUDGED = """
SELECT split, iteration, count(*) AS judged, round(avg(agreement), 4) AS agreement,
    count(*) FILTER (WHERE agreement >= 1) AS unanimous, count(agreement) AS voted,
    count(environment_reward) AS both,
    count(*) FILTER (WHERE judged = (environment_reward >= success_threshold)) AS same,
    round(same / nullif("both", 0), 4) AS same_rate
FROM trajectories WHERE judged IS NOT NULL AND judged_by = 'judge'
GROUP BY split, iteration ORDER BY split = 'train', iteration
"""


def read_points(index: Index) -> list[SuccessPoint]:
    """Return success and steps by series, iteration and band; a band of None is all of them. Raises `StoreError`.

    Steps are means over the trajectories that didn't fail, seconds over all of them.
    """
    points = []
    for row in index.rows(_POINTS):
        solved, scored = round(row["solved_cases"], 4), round(row["scored_cases"])
        row |= {"scored_cases": scored, "solved_cases": solved}
        row |= {"success_rate": ratio(solved, scored), "interval": known_interval(solved, scored)}
        points.append(cast("SuccessPoint", row))
    return points


def read_failures(index: Index) -> FailureFacts:
    """Return failures by kind, and stop reasons of the others. Raises `StoreError`."""
    return {
        "by_kind": {row["kind"]: row["count"] for row in index.rows(_KINDS)},
        "stops": {
            str(row["stop"]): {"count": row["count"], "successes": row["successes"]} for row in index.rows(_STOPS)
        },
    }


def read_verdicts(index: Index) -> list[VerdictFacts]:
    """Return, by split and iteration, the agreement of the judge's votes, and of the judge with the environment.

    Only the newest judgement of a trajectory counts, if it is a verdict. Raises `StoreError`.
    """
    return [cast("VerdictFacts", row) for row in index.rows(_JUDGED)]
