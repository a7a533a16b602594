"""Dynamic sampling (DAPO, arXiv 2503.14476): groups of equal rewards are replaced by others.

Such a group has no gradient where advantages compare its rewards.
"""

from __future__ import annotations

import math

from webgym_cli.config.model import Settings
from webgym_cli.prepare.rl.attempts import REASON_COLUMN, attempts_sql
from webgym_cli.prepare.rl.drop_reasons import MaskReason
from webgym_cli.prepare.rl.groups import load_planned_groups, resolve_group_by
from webgym_cli.store.index.query import Index
from webgym_cli.store.run import RunDir

# A group of one has nothing to compare with: estimators take its reward as it is.
_EQUAL = "count(*) > 1 AND min(reward) = max(reward)"
_MASK = f"""
UPDATE rl_batch SET reason = '{MaskReason.NO_VARIANCE}' WHERE reason IS NULL AND team IN (
    SELECT team FROM rl_batch WHERE reason IS NULL AND NOT greedy GROUP BY team HAVING {_EQUAL}
)
"""
# A group that waits for a judge may have gradient yet: it is not replaced.
_WITH_GRADIENT = """
WITH {attempts}, known AS (
    SELECT team, reward, {reason} FROM last_attempts JOIN rl_planned USING (episode) WHERE NOT baseline
)
SELECT count(*) AS count FROM (
    SELECT team FROM known GROUP BY team
    HAVING coalesce(bool_or(reason = 'reward_unknown'), false) OR count(*) FILTER (reason IS NULL) = 1
        OR min(reward) FILTER (reason IS NULL) < max(reward) FILTER (reason IS NULL)
)
"""


def filters_groups(settings: Settings, *, group_relative: bool) -> bool:
    """Return whether groups of equal rewards are left out. `group_relative`: as in `TrainingBackend`."""
    enable = settings.rl.data.filter_groups.enable
    return group_relative if enable is None else enable


def mask_groups(index: Index) -> None:
    """Mask the trajectories of the index's batch whose group has equal rewards; the greedy ones don't count."""
    index.one(_MASK)


def count_missing_episodes(run: RunDir, settings: Settings, index: Index, iteration: int, wanted: int) -> int:
    """Return how many episodes to plan next in place of groups without gradient; 0: enough, or the limit is reached.

    `wanted`: the episodes that the iteration was asked for. It depends on what is stored alone, so that a rollout that
    was killed goes on as if it had not been.
    """
    size = settings.agent.group_size
    if size == 1 or resolve_group_by(settings) != "chain":
        return 0  # the number of groups follows from the tasks, not from the plan
    load_planned_groups(index, run, [iteration], "chain", size)
    attempts = attempts_sql(f"iteration = {iteration}")
    usable: int = index.one(_WITH_GRADIENT.format(attempts=attempts, reason=REASON_COLUMN))["count"]
    groups: int = index.one("SELECT count(DISTINCT team) AS count FROM rl_planned")["count"]
    target = math.ceil(wanted / size)
    missing = target - usable
    room = target * settings.rl.data.filter_groups.max_num_gen_batches - groups
    if missing <= 0 or room <= 0:
        return 0
    # As many groups as are expected to give the missing ones, at most a whole batch at a time.
    drawn = math.ceil(missing * groups / max(1, usable))
    return min(drawn, target, room) * size
