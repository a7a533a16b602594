"""Repetition metrics of a policy's responses in the newest training iteration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict, cast

from webgym_cli.report.charts import format_percent
from webgym_cli.store.index.query import Index

# Minimum number of steps for a warning; fewer are not informative.
_FEWEST = 50
_REPEATED = 0.5
_SAME = 0.9

_NEWEST = """
WITH newest AS (SELECT id, iteration, task_key FROM trajectories WHERE series = 'train'
    AND iteration = (SELECT max(iteration) FROM trajectories WHERE series = 'train')
), said AS (
    SELECT newest.iteration, task_key, response_digest,
        lag(response_digest) OVER (PARTITION BY trajectory ORDER BY step) AS before
    FROM steps JOIN newest ON steps.trajectory = newest.id AND steps.iteration = newest.iteration
    WHERE steps.split = 'train'
)
SELECT max(iteration) AS iteration, count(*) AS steps, count(DISTINCT task_key) AS tasks,
    count(before) AS later, count(*) FILTER (WHERE response_digest = before) AS repeated,
    (SELECT max(n) FROM (SELECT count(*) AS n FROM said GROUP BY response_digest)) AS commonest
FROM said
"""


class Repetition(TypedDict):
    """Repetition metrics of an iteration's responses."""

    iteration: int | None
    """None without any."""
    steps: int
    tasks: int
    later: int
    """Steps that are not the first of their episode."""
    repeated: int
    """Of these: the response is that of the step before."""
    commonest: int | None
    """Steps with the most frequent response."""


def read_repetition(index: Index) -> Repetition:
    """Return the repetition metrics of the newest training iteration. Raises `StoreError`."""
    return cast("Repetition", index.one(_NEWEST))


def warn_repetition(facts: Repetition) -> Iterator[str]:
    """Yield a warning for each sign that the policy's responses have collapsed."""
    if facts["steps"] < _FEWEST:
        return
    if facts["later"] >= _FEWEST and (share := facts["repeated"] / facts["later"]) > _REPEATED:
        yield (
            f"In iteration {facts['iteration']} {format_percent(share)} of the responses repeat that of the step "
            "before: the policy is stuck; rollout.max_repeated_actions ends such episodes."
        )
    if facts["tasks"] > 1 and facts["commonest"] and (share := facts["commonest"] / facts["steps"]) > _SAME:
        yield (
            f"In iteration {facts['iteration']} {format_percent(share)} of the responses, over {facts['tasks']} tasks, "
            "are one and the same: the policy does not look at its page any more."
        )
