"""Means of rewards, their extras, step counts and tool calls over scored trajectories, by SQL over the index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from webgym_cli.store.index.query import Index

_MEANS = """
WITH scored AS (SELECT *, {key} AS key FROM trajectories WHERE success IS NOT NULL AND ({where})),
named AS (
    SELECT key, iteration, 'mean_reward' AS name, reward AS value FROM scored
    UNION ALL SELECT key, iteration, 'mean_steps', steps FROM scored
    UNION ALL SELECT key, iteration, 'reward_extra/' || pair.key, pair.value
        FROM (SELECT key, iteration, unnest(map_entries(reward_extra)) AS pair FROM scored)
    UNION ALL SELECT key, iteration, 'tool_calls/' || pair.key, pair.value
        FROM (SELECT key, iteration, unnest(map_entries(tool_calls)) AS pair FROM scored)
), counted AS (SELECT key, iteration, count(*) AS scored FROM scored GROUP BY ALL)
SELECT key, iteration, name,
    CASE WHEN name LIKE 'tool_calls/%' THEN any_value(scored) ELSE count(*) END AS trajectories,
    round(sum(value) / trajectories, 4) AS mean
FROM named JOIN counted USING (key, iteration) GROUP BY key, iteration, name ORDER BY key, iteration, name
"""


def read_means(index: Index, key: str, where: str = "true", parameters: Sequence[Any] = ()) -> Iterator[dict[str, Any]]:
    """Yield the `mean` of each `name` by `key` (an SQL expression) and iteration, over scored `trajectories`.

    Names are `mean_reward`, `mean_steps`, `reward_extra/NAME` and `tool_calls/NAME`. Tool calls that a trajectory did
    not make count as 0; missing reward extras are not counted.
    """
    return index.rows(_MEANS.format(key=key, where=where), parameters)
