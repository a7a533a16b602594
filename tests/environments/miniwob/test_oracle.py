"""The expert reaches the full reward: on every page it knows, in both modes, on many seeds."""

import asyncio

import pytest

from webgym_cli.environments.miniwob.environment import MiniWobPool
from webgym_cli.environments.miniwob.oracle import list_expert_tasks
from webgym_cli.records.action import InteractionMode
from webgym_cli.records.task import Task

pytestmark = pytest.mark.browser

FEW = {"click-checkboxes-large", "click-shades", "click-scroll-list", "click-test-transfer", "enter-text-dynamic"}
"""Pages that take many steps or are much like another; fewer seeds of them keep the test short."""


async def solve(pool: MiniWobPool, page: str, seed: int, gate: asyncio.Semaphore) -> tuple[str, int, float | None, int]:
    async with gate:
        environment = pool.new()
        try:
            await environment.reset(Task(id=page), seed)
            for step in range(1, 16):
                result = await environment.step(await environment.expert_action())
                assert result.action_error is None, f"{page} {seed}: {result.action_error}"
                if result.done:
                    return page, seed, result.score.value if result.score else None, step
            return page, seed, None, step
        finally:
            await environment.close()


@pytest.mark.parametrize("mode", InteractionMode)
async def test_expert_solves_its_pages(mode: InteractionMode, marked: MiniWobPool, pointed: MiniWobPool):
    """Each mode has every page and half of the seeds: what a seed changes is the page, not how it is acted on."""
    pool, first = (marked, 0) if mode is InteractionMode.SET_OF_MARKS else (pointed, 1)
    gate = asyncio.Semaphore(8)
    wanted = [(page, seed) for page in list_expert_tasks() for seed in range(first, 2 if page in FEW else 6, 2)]
    ended = await asyncio.gather(*(solve(pool, page, seed, gate) for page, seed in wanted))
    assert len(list_expert_tasks()) >= 14
    assert [episode for episode in ended if episode[2] != 1.0] == []
