"""Execution of single episode attempts in this process, also in each Ray worker, and the check of each at its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from webgym_cli.agent.client.gate import PolicyGate
from webgym_cli.config.model import Settings
from webgym_cli.environments.base import Environment, EnvironmentPool
from webgym_cli.environments.browser.page_view import PageView
from webgym_cli.environments.registry import find_environment
from webgym_cli.errors import BoundaryError
from webgym_cli.jobs.machine_time import MachineMeter
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.trajectory import FinalState, Outcome, Trajectory
from webgym_cli.rollout.agents import Agent, ModelAgent
from webgym_cli.rollout.episode import EpisodeRun, describe_exception
from webgym_cli.rollout.memory_limiter import MemoryLimiter, default_concurrency
from webgym_cli.rollout.plan import PendingEpisode
from webgym_cli.rollout.queue import SharedRollouts, SlotPool
from webgym_cli.rollout.resources import PolicyEndpoint, open_agent
from webgym_cli.rollout.stage_timer import EpisodeStage, StageTimer
from webgym_cli.scoring.check import CheckContext, find_check
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.tools.workers import Workers

if TYPE_CHECKING:
    from playwright.async_api import Page


@dataclass(slots=True)
class LocalRunner:
    """Runs attempts for a rollout engine in this process; `RayRunner` has the same interface."""

    directory: RunDir
    settings: Settings
    agent: Agent
    pool: EnvironmentPool | None
    """None: there is no episode to run."""
    gate: PolicyGate = field(default_factory=PolicyGate)
    """Holds episodes during a weight update of the policy."""
    make_episode: Callable[..., EpisodeRun] = EpisodeRun
    """Makes the episode of an attempt; another one where the agent is not webgym's."""
    meter: MachineMeter = field(default_factory=MachineMeter)
    shared_slots: SlotPool | None = None
    """Slots of this process, if several rollouts share them."""
    stages: StageTimer = field(default_factory=StageTimer)
    """Times the stages of this process."""
    on_slots_added: Callable[[int], None] | None = None
    """Called with the number of added slots when a node joins."""
    slots: int = field(init=False)
    """Number of episodes that can run at once."""
    _memory: MemoryLimiter = field(init=False)
    _workers: Workers = field(default_factory=Workers)
    _playing: set[asyncio.Task[Any]] = field(default_factory=set)
    _stopped: bool = False

    def __post_init__(self) -> None:
        """Derive the limits of this machine."""
        self.slots = default_concurrency(self.settings.rollout)
        self._memory = MemoryLimiter(self.settings.browser.memory_reserve_mb)
        if isinstance(self.agent, ModelAgent):
            self.stages.servers = self.agent.servers

    async def run(self, owed: PendingEpisode) -> Trajectory | None:
        """Run one attempt once a slot and enough memory are free; if cancelled, return the steps so far.

        None if stopped before its start.
        """
        async with nullcontext() if self.shared_slots is None else self.shared_slots.slot(owed.episode.split):
            # Timed separately: the episode has no browser yet, and its timeout has not started.
            with self.stages.time(owed.episode.id, EpisodeStage.ADMISSION):
                await self._memory.enter()
            try:
                return None if self._stopped else await self._play(owed)
            finally:
                self._memory.leave()

    def stop(self) -> None:
        """Cancel the running attempts and start no more."""
        self._stopped = True
        for task in tuple(self._playing):
            task.cancel()

    def worker_timings(self) -> list[dict[str, Any]]:
        """Return the timings (`StageTimer.timings`) of workers in other processes: none."""
        return []

    def facts(self) -> dict[str, Any]:
        """Return additional fields of the summary: none."""
        return {}

    async def _play(self, owed: PendingEpisode) -> Trajectory:
        task = asyncio.current_task()
        if self.pool is None or task is None:
            raise RuntimeError("an episode without environments, or outside of a task")
        environment = self.pool.new()
        if self.settings.browser.record_har:
            environment.har = self.directory.har / f"{owed.trajectory_id}.har"
        store = ScreenshotStore(self.directory.screenshots)
        episode = self.make_episode(owed, self.agent, environment, store, self.settings, self.stages, self.gate)
        self.stages.begin(owed)
        self._playing.add(task)
        try:
            trajectory = await episode.run()
            with self.stages.time(owed.episode.id, EpisodeStage.CHECK):
                trajectory = await check_trajectory(trajectory, environment, self.settings, self._workers)
        except asyncio.CancelledError:
            trajectory = episode.trajectory(Outcome(failure=FailureKind.CANCELLED))  # it stays owed
        finally:
            # From here on `stop` must not cancel the task: the browser must close.
            self._playing.discard(task)
            failure = await _close(environment)
            self.stages.end(owed.episode.id)
        return (episode.trajectory(failure) if failure else trajectory).model_copy(update=self.meter.take_lap())


async def _close(environment: Environment) -> Outcome | None:
    """Close an environment. Returns None, or the outcome of its episode if that raises unexpectedly."""
    try:
        await environment.close()
    except (Exception, SystemExit) as error:  # noqa: BLE001  a plug-in's exception must not end the other episodes
        return describe_exception(error)
    return None


@asynccontextmanager
async def open_runner(
    run: RunDir, settings: Settings, endpoint: PolicyEndpoint, environment: str, shared: SharedRollouts | None = None
) -> AsyncIterator[LocalRunner]:
    """Yield a runner with its agent and environment pool.

    `environment`: its registered name; empty: no pool. `shared`: state shared with other rollouts of this process.
    """
    gate = shared.gate if shared else PolicyGate(endpoint.served)
    opened = find_environment(environment).make_pool(settings) if environment else nullcontext()
    async with open_agent(run, settings, endpoint, gate) as agent, opened as pool:
        slots, meter = (shared.slots, shared.meter) if shared else (None, MachineMeter())
        meter.gpus = max(meter.gpus, endpoint.gpus)
        yield LocalRunner(run, settings, agent, pool, gate, meter=meter, shared_slots=slots)


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
        context = CheckContext(trajectory.model_copy(deep=True), view)  # a check may change its lists, not the record
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
