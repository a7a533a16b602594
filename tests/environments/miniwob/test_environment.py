"""MiniWoB: every page starts, a seed repeats, and what a policy may not do is answered and not raised."""

import asyncio
import io
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from PIL import Image

from webgym_cli.config.browser import BrowserSettings
from webgym_cli.config.load import load
from webgym_cli.config.model import Settings
from webgym_cli.environments.base import RawObservation
from webgym_cli.environments.miniwob.environment import MiniWobPool, browser_for_pages
from webgym_cli.environments.miniwob.oracle import list_expert_tasks
from webgym_cli.environments.miniwob.pages import list_pages
from webgym_cli.environments.web.environment import WebPool
from webgym_cli.errors import UsageError
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.task import Task

pytestmark = pytest.mark.browser

WITHOUT_ELEMENTS = {"chase-circle", "hover-shape"}
"""Nothing on these pages is clicked."""


@asynccontextmanager
async def opened(pool: MiniWobPool, page: str, seed: int) -> AsyncIterator[tuple]:
    """An episode on a page: its environment, instruction and first observation."""
    environment = pool.new()
    try:
        yield environment, *await environment.reset(Task(id=page), seed)
    finally:
        await environment.close()
        await environment.close()


async def first(pool: MiniWobPool, page: str, seed: int) -> tuple[str, RawObservation]:
    async with opened(pool, page, seed) as (_, instruction, view):
        return instruction, view


async def test_what_a_script_animates_is_seen_at_rest(marked: MiniWobPool):
    async with opened(marked, "click-collapsible", 5) as (environment, *_):
        after = (await environment.step(Action(name=ActionName.CLICK, element_id=0))).view
        later = (await environment.step(Action(name=ActionName.WAIT, seconds=1))).view
    assert after is not None and later is not None
    assert (after.elements, after.png) == (later.elements, later.png)


async def test_what_is_refused_is_told_to_the_policy(marked: MiniWobPool):
    async with opened(marked, "click-test-2", 1) as (environment, _, view):
        for action, reason in (
            (Action(name=ActionName.CLICK, element_id=99), f"no element 99; .* 0 to {len(view.elements) - 1}"),
            (Action(name=ActionName.NAVIGATE, url="https://example.org"), "can't be left"),
            (Action(name=ActionName.GO_BACK), "nothing to go back to"),
        ):
            result = await environment.step(action)
            assert re.search(reason, result.action_error or "")
            assert not result.done and result.view == view


async def test_the_end_and_its_score(marked: MiniWobPool):
    async with opened(marked, "click-test-2", 1) as (environment, *_):
        unsolved = await environment.answer("done")
        assert unsolved is not None and unsolved.value == 0.0
        _, view = await environment.reset(Task(id="click-test-2"), 1)
        wrong = next(element for element in view.elements if element.name == "TWO")
        result = await environment.step(Action(name=ActionName.CLICK, element_id=wrong.id))
        assert result.done and result.view is None and result.score is not None
        assert (result.score.source, result.score.value) == ("environment", 0.0)
        assert result.score.extras == {"raw_reward": -1.0}
        assert await environment.answer("done") == result.score
        assert (await environment.step(Action(name=ActionName.WAIT, seconds=0))).done


async def test_unknown_pages_and_pages_without_an_expert(marked: MiniWobPool):
    with pytest.raises(UsageError, match="no MiniWoB page 'click-tset'"):
        await first(marked, "click-tset", 1)
    async with opened(marked, "tic-tac-toe", 1) as (environment, *_):
        with pytest.raises(UsageError, match="no expert for 'tic-tac-toe'"):
            await environment.expert_action()
    assert "tic-tac-toe" not in list_expert_tasks() and set(list_expert_tasks()) <= set(list_pages())


async def test_the_documents_of_earlier_episodes_are_collected_in_a_context_that_is_used_again():
    async with MiniWobPool(load(), InteractionMode.COORDINATES) as pool:
        environment = pool.new()
        for seed in range(8):
            await environment.reset(Task(id="click-button"), seed)
        session = environment._session
        channel = (await session.connection()).channel
        assert session.uses == 7
        assert (await channel.send("Memory.getDOMCounters"))["documents"] <= 4
        await environment.close()


def test_contexts_have_the_size_of_the_page_and_the_browser_no_webgl():
    settings = load(overrides=["browser.width=800"])
    pool = MiniWobPool(settings, InteractionMode.COORDINATES)
    for longer in (MiniWobPool, WebPool):
        long_episodes = settings.with_changes(rollout={"episode_timeout": 5000.0})
        assert longer(long_episodes, InteractionMode.COORDINATES).options.life_seconds == 10000.0
    assert (pool.options.life_seconds, pool.options.width) == (3600.0, 160)
    assert pool.options.context_arguments == {"locale": "en-US", "accept_downloads": False, "timezone_id": "UTC"}
    assert "--disable-software-rasterizer" in browser_for_pages(BrowserSettings(args=("--own",))).args


async def test_every_page_starts(marked: MiniWobPool):
    names = list_pages()
    assert len(names) == 130
    gate = asyncio.Semaphore(8)

    async def start(name: str) -> tuple[str, RawObservation]:
        async with gate:
            return await first(marked, name, 1)

    for name, (instruction, view) in zip(names, await asyncio.gather(*map(start, names)), strict=True):
        assert instruction and "\n" not in instruction, name
        assert view.url.endswith(f"/{name}.html") and view.title, name
        assert Image.open(io.BytesIO(view.png)).size == (160, 210), name
        assert [element.id for element in view.elements] == list(range(len(view.elements))), name
        assert bool(view.elements) != (name in WITHOUT_ELEMENTS), name


async def test_a_seed_is_the_same_episode_everywhere(marked: MiniWobPool):
    async with MiniWobPool(Settings(), InteractionMode.SET_OF_MARKS) as other:
        for page in ("click-test-2", "click-dialog-2", "email-inbox", "choose-date", "click-shades"):
            before = await first(marked, page, 7)
            await first(marked, "login-user", 3)
            assert await first(marked, page, 7) == before, page
            assert await first(other, page, 7) == before, page
            assert (await first(marked, page, 8))[1].png != before[1].png, page


async def test_coordinates_mode_shows_the_bare_page(pointed: MiniWobPool, marked: MiniWobPool):
    bare = await first(pointed, "click-button", 5)
    numbered = await first(marked, "click-button", 5)
    assert bare[0] == numbered[0]
    assert bare[1].elements == () and numbered[1].elements
    assert bare[1].png != numbered[1].png
