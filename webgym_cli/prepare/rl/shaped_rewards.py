"""Rewards of a batch that a `@shaping` function makes from the stored ones."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from webgym_cli.config.model import Settings
from webgym_cli.errors import BoundaryError, SettingsError, StoreError
from webgym_cli.prepare.rl.attempts import attempts_sql
from webgym_cli.records.statistics import mean_by_name
from webgym_cli.scoring.define import RewardResult
from webgym_cli.scoring.shaping import SHAPINGS, Shaping
from webgym_cli.store.buffer import LineRef, read
from webgym_cli.store.index.query import LINE_REF, Index
from webgym_cli.store.run import RunDir
from webgym_cli.tools.workers import Workers

_REWARDED = "WITH {attempts} SELECT {place} AS place FROM last_attempts WHERE reason IS NULL"
_SHAPED = """
CREATE OR REPLACE TABLE rl_shaped AS SELECT unnest(?::VARCHAR[]) AS id, unnest(?::DOUBLE[]) AS shaped
"""


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
