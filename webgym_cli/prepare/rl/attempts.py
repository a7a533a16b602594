"""SQL over an index: the last attempt of each training episode, and why it may be masked."""

from __future__ import annotations

# `reason`: why a trajectory is masked, by `MaskReason`; null if it is not.
_ATTEMPTS = """
ambiguous AS (
    SELECT id FROM stored WHERE split = 'train' GROUP BY id HAVING count(*) > 1
), last_attempts AS (
    SELECT *, CASE WHEN id IN (SELECT id FROM ambiguous) THEN 'ambiguous_id' WHEN failure IS NOT NULL THEN 'failure'
        WHEN steps = 0 THEN 'empty' WHEN reward IS NULL THEN 'reward_unknown' END AS reason
    FROM (
        SELECT {rewarded} WHERE split = 'train' AND {where}
        QUALIFY row_number() OVER (PARTITION BY iteration, episode ORDER BY attempt DESC, file, start) = 1
    )
)
"""
_SHAPED = """
trajectories.* REPLACE (coalesce(shaped, reward) AS reward) FROM trajectories LEFT JOIN rl_shaped USING (id)
"""


def attempts_sql(where: str, *, shaped: bool = False) -> str:
    """Return the WITH clause that defines `last_attempts` for the iterations that match a condition.

    `shaped`: with the rewards of the table `rl_shaped`, where there are any.
    """
    return _ATTEMPTS.format(where=where, rewarded=_SHAPED if shaped else "* FROM trajectories")
