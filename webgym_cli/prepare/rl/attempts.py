"""SQL over an index: of each training episode the attempt that counts, and what is known against it."""

from __future__ import annotations

_ATTEMPTS = """
ambiguous AS (
    SELECT id FROM stored WHERE split = 'train' GROUP BY id HAVING count(*) > 1
), last_attempts AS (
    SELECT * FROM trajectories WHERE split = 'train' AND {where}
    QUALIFY row_number() OVER (PARTITION BY iteration, episode ORDER BY attempt DESC, file, start) = 1
)
"""
# Why a trajectory of `last_attempts` is masked, by `MaskReason`; null where nothing is known against it.
REASON_COLUMN = """
CASE WHEN id IN (SELECT id FROM ambiguous) THEN 'ambiguous_id' WHEN failure IS NOT NULL THEN 'failure'
    WHEN steps = 0 THEN 'empty' WHEN reward IS NULL THEN 'reward_unknown' END AS reason
"""


def attempts_sql(where: str) -> str:
    """Return what follows WITH: `last_attempts` of the iterations that a condition chooses."""
    return _ATTEMPTS.format(where=where)
