"""Means of rewards, their extras, step counts and tool calls over scored trajectories, by SQL over the index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypedDict

from webgym_cli.store.index.query import Index


class MeanPoint(TypedDict):
    """Mean of one value over the scored trajectories of an iteration."""

    key: str
    """The group."""
    iteration: int
    name: str
    """`mean_reward`, `mean_steps`, `reward_extra/NAME` or `tool_calls/NAME`."""
    mean: float
    trajectories: int
    """Number of averaged trajectories."""


_MEANS = """
WITH scored AS (SELECT *, {key} AS key FROM trajectories WHERE success IS NOT NULL AND ({where})),
named AS (
    SELECT key, iteration, 'mean_reward' AS name, reward AS value FROM scored
    UNION ALL SELECT key, iteration, 'mean_steps', steps FROM scored
    UNION ALL SELECT key, iteration, 'reward_extra/' || pair.key, pair.value
        FROM (SELECT key, iteration, unnest(map_entries(reward_extra)) AS pair FROM scored)
    UNION ALL SELECT key, iteration, 'tool_calls/' || pair.key, pair.value
        FROM (SELECT key, iteration, unnest(map_entries(tool_calls)) AS pair FROM scored)
), counted AS (SELECT key, iteration, count(*) AS trajectories FROM scored GROUP BY ALL)
SELECT key, iteration, name, sum(value) AS total, count(*) AS valued, any_value(trajectories) AS trajectories
FROM named JOIN counted USING (key, iteration) GROUP BY key, iteration, name ORDER BY key, iteration, name
"""


def read_means(index: Index, key: str, where: str = "true", parameters: Sequence[Any] = ()) -> Iterator[MeanPoint]:
    """Yield the means by `key` (an SQL expression) and iteration, with the number of averaged trajectories.

    Tool calls that a trajectory did not make count as 0; missing reward extras are not counted.
    """
    for row in index.rows(_MEANS.format(key=key, where=where), parameters):
        count = row["trajectories" if row["name"].startswith("tool_calls/") else "valued"]
        yield {
            "key": row["key"],
            "iteration": row["iteration"],
            "name": row["name"],
            "mean": round(row["total"] / count, 4),
            "trajectories": count,
        }
