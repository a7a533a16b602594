"""The attempt that counts of each training episode, its shaped reward, and the groups of them with equal rewards.

It is the last one that was rolled out, also by a check that was mended since; without one the last failure.

A `@shaping` function makes another reward of the stored one. Groups with equal rewards have no gradient if advantages
compare the rewards of a group: they are replaced by others (dynamic sampling, DAPO, arXiv 2503.14476).
"""

from __future__ import annotations

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor

from webgym_cli.config.model import Settings
from webgym_cli.errors import BoundaryError, SettingsError, StoreError
from webgym_cli.prepare.groups import load_planned_groups, resolve_group_by
from webgym_cli.prepare.rl.drop_reasons import MaskReason
from webgym_cli.records.statistics import mean_by_name
from webgym_cli.scoring.check import SHAPINGS, Shaping
from webgym_cli.scoring.define import RewardResult
from webgym_cli.store.buffer import LineRef, read
from webgym_cli.store.index.query import LINE_REF, Index
from webgym_cli.store.run import RunDir
from webgym_cli.tools.workers import Workers

# `reason`: why a trajectory is masked, by `MaskReason`; null if it is not.
_ATTEMPTS = """
ambiguous AS (
    SELECT id FROM stored WHERE split = 'train' GROUP BY id HAVING count(*) > 1
), last_attempts AS (
    SELECT *, CASE WHEN id IN (SELECT id FROM ambiguous) THEN 'ambiguous_id' WHEN failure IS NOT NULL THEN 'failure'
        WHEN steps = 0 THEN 'empty' WHEN reward IS NULL THEN 'reward_unknown' END AS reason
    FROM (
        SELECT {rewarded} WHERE split = 'train' AND {where}
        QUALIFY row_number() OVER (PARTITION BY iteration, episode
            ORDER BY coalesce(failure, 'judge_failed') = 'judge_failed' DESC, attempt DESC, file, start) = 1
    )
)
"""
_WITH_SHAPED = """
trajectories.* REPLACE (coalesce(shaped, reward) AS reward) FROM trajectories LEFT JOIN rl_shaped USING (id)
"""
_REWARDED = "WITH {attempts} SELECT {place} AS place FROM last_attempts WHERE reason IS NULL"
_SHAPED = """
CREATE OR REPLACE TABLE rl_shaped AS SELECT unnest(?::VARCHAR[]) AS id, unnest(?::DOUBLE[]) AS shaped
"""


def attempts_sql(where: str, *, shaped: bool = False) -> str:
    """Return the WITH clause that defines `last_attempts` for the iterations that match a condition.

    `shaped`: with the rewards of the table `rl_shaped`, where there are any.
    """
    return _ATTEMPTS.format(where=where, rewarded=_WITH_SHAPED if shaped else "* FROM trajectories")


def shape_rewards(run: RunDir, settings: Settings, index: Index, where: str) -> dict[str, float]:
    """Write the shaped rewards of the last attempts that match a condition into the index's table `rl_shaped`.

    Returns the means of the other numbers of the function. Without `rl.data.shaping` the table is empty. Raises
    `SettingsError` if the function fails for a trajectory.
    """
    shaped: dict[str, RewardResult] = {}
    if name := settings.rl.data.shaping:
        sql = _REWARDED.format(attempts=attempts_sql(where), place=LINE_REF)
        places = [LineRef(**row["place"]) for row in index.rows(sql)]
        shaping = _shape_all(SHAPINGS.find(name), run, places, settings.agent.reward_timeout)
        with ThreadPoolExecutor(1) as thread:  # a plan is made within an event loop, which can't run another one
            shaped = thread.submit(asyncio.run, shaping).result()
    index.one(_SHAPED, [list(shaped), [one.reward for one in shaped.values()]])
    return mean_by_name(one.numbers() for one in shaped.values())


async def _shape_all(shaping: Shaping, run: RunDir, places: list[LineRef], seconds: float) -> dict[str, RewardResult]:
    workers, shaped = Workers(), dict[str, RewardResult]()
    for place in places:
        try:
            trajectory = read(run, place)
        except StoreError:
            continue  # the batch masks it as damaged
        try:
            shaped[place.id] = await shaping.shape(workers, trajectory, seconds)
        except BoundaryError as error:
            raise SettingsError(f"{place.id}: {error}", hint="fix the function, then repeat the command") from error
    return shaped


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
