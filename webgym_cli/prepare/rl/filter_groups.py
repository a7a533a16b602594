"""Dynamic sampling (DAPO, arXiv 2503.14476): groups with equal rewards are replaced by others.

If advantages compare the rewards of a group, such a group has no gradient.
"""

from __future__ import annotations

import math

from webgym_cli.config.model import Settings
from webgym_cli.prepare.groups import load_planned_groups, resolve_group_by
from webgym_cli.prepare.rl.attempts import attempts_sql, shape_rewards
from webgym_cli.prepare.rl.drop_reasons import MaskReason
from webgym_cli.store.index.query import Index
from webgym_cli.store.run import RunDir

# A group of one has nothing to compare with; estimators use its reward unchanged.
_EQUAL = "count(*) > 1 AND min(reward) = max(reward)"
_MASK = f"""
UPDATE rl_batch SET reason = '{MaskReason.NO_VARIANCE}' WHERE reason IS NULL AND team IN (
    SELECT team FROM rl_batch WHERE reason IS NULL AND NOT greedy GROUP BY team HAVING {_EQUAL}
)
"""
# A group that awaits a judge may still have a gradient, so it is not replaced.
_WITH_GRADIENT = """
WITH {attempts}, known AS (
    SELECT team, reward, reason FROM last_attempts JOIN rl_planned USING (episode) WHERE NOT baseline
)
SELECT count(*) AS count FROM (
    SELECT team FROM known GROUP BY team
    HAVING coalesce(bool_or(reason = 'reward_unknown'), false) OR count(*) FILTER (reason IS NULL) = 1
        OR min(reward) FILTER (reason IS NULL) < max(reward) FILTER (reason IS NULL)
)
"""


def mask_groups(index: Index) -> None:
    """Mask the trajectories of groups with equal rewards in the index's batch; greedy ones are not compared."""
    index.one(_MASK)


def count_missing_episodes(run: RunDir, settings: Settings, index: Index, iteration: int, wanted: int) -> int:
    """Return the number of episodes to plan in place of groups without gradient; 0: enough, or the limit is reached.

    `wanted`: requested episodes of the iteration. The result depends only on stored data, so an interrupted rollout
    continues unchanged.
    """
    size = settings.agent.group_size
    if size == 1 or resolve_group_by(settings) != "chain":
        return 0  # the number of groups depends on the tasks, not on the plan
    load_planned_groups(index, run, [iteration], "chain", size)
    of_iteration = f"iteration = {iteration}"
    shape_rewards(run, settings, index, of_iteration)
    usable: int = index.one(_WITH_GRADIENT.format(attempts=attempts_sql(of_iteration, shaped=True)))["count"]
    groups: int = index.one("SELECT count(DISTINCT team) AS count FROM rl_planned")["count"]
    target = math.ceil(wanted / size)
    missing = target - usable
    room = target * settings.rl.data.filter_groups.max_num_gen_batches - groups
    if missing <= 0 or room <= 0:
        return 0
    # As many groups as should provide the missing ones on average, at most one batch at a time.
    drawn = math.ceil(missing * groups / max(1, usable))
    return min(drawn, target, room) * size
