"""The fixture sites as an environment: scored, seeded, isolated, and solved by their expert in both modes."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from tests.environments.visits import HASTY
from webgym_cli.config.load import load
from webgym_cli.config.rollout import MaxSteps
from webgym_cli.environments.fixture_sites.environment import SiteServer, SitesPool
from webgym_cli.environments.fixture_sites.tasks import load_site_tasks
from webgym_cli.errors import BoundaryError
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Task
from webgym_cli.tasks.source import open_tasks

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("chromium")]

MODES = list(InteractionMode)
TASKS = [task.task for task in load_site_tasks().values()]


@pytest.fixture(scope="module")
async def pools() -> AsyncIterator[dict[InteractionMode, SitesPool]]:
    by_mode = {mode: SitesPool(load(overrides=list(HASTY)), mode) for mode in MODES}
    for pool in by_mode.values():
        await pool.__aenter__()
    yield by_mode
    for pool in by_mode.values():
        await pool.__aexit__(None, None, None)


def task(name: str) -> Task:
    return open_tasks(f"sites:{name}").task(0)


async def solve(environment, which: Task, seed: int):
    """Let the expert act; return its actions, the score and the errors, those of the pages' scripts too."""
    await environment.reset(which, seed)
    actions, errors = [], []
    environment.session.page.context.on("weberror", lambda event: errors.append(event.error))
    for _ in range(getattr(MaxSteps(), which.band.value)):
        action = await environment.expert_action()
        actions.append(action)
        if action.name is ActionName.ANSWER:
            return actions, await environment.answer(action.text or ""), errors
        if error := (await environment.step(action)).action_error:
            errors.append(error)
    raise AssertionError("the expert did not finish")


@pytest.mark.parametrize("number", range(len(TASKS)), ids=[task.id for task in TASKS])
async def test_the_expert_solves_each_task_in_one_of_the_modes(pools, number):
    mode = MODES[number % 2]
    environment = pools[mode].new()
    actions, score, errors = await solve(environment, TASKS[number], number)
    await environment.close()
    assert pools[mode].server.episodes == {}
    assert (score.source, score.value, errors) == ("environment", 1.0, []), score.detail
    assert all(action.coordinate is None for action in actions) == (mode is InteractionMode.SET_OF_MARKS)


async def test_the_same_seed_is_the_same_episode(pools):
    pool = pools[InteractionMode.SET_OF_MARKS]

    async def shown(seed):
        environment = pool.new()
        instruction, view = await environment.reset(task("shop-cart"), seed)
        resolved = environment.resolve_task(task("shop-cart"))
        await environment.close()
        return instruction, view.png, view.elements, resolved.rubric

    one, same, other = await shown(5), await shown(5), await shown(6)
    assert one == same
    assert one[0] != other[0] and one[3]


class FailingServer(SiteServer):
    async def _serve(self, request):
        return web.Response(text="not now", status=503)


async def test_a_reset_that_fails_leaves_no_episode_behind():
    pool = SitesPool(load(overrides=list(HASTY)), InteractionMode.COORDINATES)
    pool.server = FailingServer()
    async with pool:
        environment = pool.new()
        with pytest.raises(BoundaryError) as failure:
            await environment.reset(task("shop-cart"), 0)
        assert failure.value.kind is FailureKind.NAVIGATION_FAILED
        await environment.close()
        assert pool.server.episodes == {}


async def test_sites_are_reached_through_the_same_gate(pools):
    environment = pools[InteractionMode.COORDINATES].new()
    await environment.reset(task("shop-cart"), 0)
    result = await environment.step(
        Action(name=ActionName.NAVIGATE, url=f"http://{pools[InteractionMode.COORDINATES].server.address}/")
    )
    assert "private address" in result.action_error
    await environment.close()
