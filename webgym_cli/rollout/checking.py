"""The check of an episode that has just ended, while its page is still open."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from webgym_cli.config.model import Settings
from webgym_cli.environments.base import Environment
from webgym_cli.environments.browser.page_view import PageView
from webgym_cli.errors import BoundaryError
from webgym_cli.records.final_state import FinalState
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.scoring.check import CheckContext, find_check
from webgym_cli.tools.workers import Workers

if TYPE_CHECKING:
    from playwright.async_api import Page

_READ = "() => [document.title, document.body ? document.body.innerText.slice(0, 100000) : '']"
# Seconds for the text of the last page, which is nearly always there at once.
_READ_SECONDS = 10.0


async def check_trajectory(
    trajectory: Trajectory, environment: Environment, settings: Settings, workers: Workers
) -> Trajectory:
    """Return an episode's record with the score of its task's check; unchanged if it has none, or failed.

    A check that fails, for whatever reason, fails the episode.
    """
    task, outcome = trajectory.task, trajectory.outcome
    if not task.check or outcome.failure:
        return trajectory
    # An environment of a plug-in need not derive from `Environment`, whose defaults it then lacks.
    page = getattr(environment, "page", None)
    state = getattr(getattr(environment, "start", None), "state", None)
    final = (await _read_page(page)).model_copy(update={"state": state})
    trajectory = trajectory.model_copy(update={"final": final.to_storable()})
    view = PageView(page, asyncio.get_running_loop()) if page is not None else None
    changes: dict[str, Any] = {"success_threshold": settings.rollout.success_threshold}
    try:
        context = CheckContext(trajectory, view)
        score = await find_check(task).score(workers, context, settings.agent.reward_timeout)
        changes |= {"reward": score.value, "scores": (*outcome.scores, score)}
    except BoundaryError as error:
        changes |= {"reward": None, "failure": error.kind, "failure_detail": str(error)}
    return trajectory.model_copy(update={"outcome": outcome.model_copy(update=changes).to_storable()})


async def _read_page(page: Page | None) -> FinalState:
    if page is None:
        return FinalState()
    try:
        async with asyncio.timeout(_READ_SECONDS):
            await page.wait_for_load_state("domcontentloaded")
            title, text = await page.evaluate(_READ)
    except Exception:  # noqa: BLE001  a page that hangs or has an open dialog: only a check that needs its text fails
        return FinalState(url=page.url)
    return FinalState(url=page.url, title=title, text=text)
