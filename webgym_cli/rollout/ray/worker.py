"""A rank of a scaled-out rollout: a Ray actor with a whole engine in it, its own browsers and connections included.

It works as long as the driver talks to it. The talk is the lease: without a word for `LEASE` seconds it ends by itself,
before the driver, which waits longer, gives its episodes to others.
"""

from __future__ import annotations

import asyncio
import os
import platform
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import webgym_cli
from webgym_cli.errors import UsageError, VenvError, WebGymError
from webgym_cli.jobs.ray_cluster import wait_for_file
from webgym_cli.records.events import Event
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.engine import RolloutEngine
from webgym_cli.rollout.plan import RolloutPlan, read_plan
from webgym_cli.rollout.ray.messages import Arrival, Fault, Item, Orders, Posting, Report, lean
from webgym_cli.rollout.ray.queue import Outbox, RankQueue
from webgym_cli.rollout.resources import ResourceFactory
from webgym_cli.store.run import RunDir

LEASE = 60.0
"""Seconds without a word of the driver after which a rank ends by itself."""
PULSE = 0.5
"""Longest time in seconds that the driver waits for an answer when there is nothing to tell."""
MARKER_SECONDS = 15.0
"""How long a marker file may take to be seen: network file systems show new files late."""
_CLOSING = 25.0
"""Seconds for the episodes to be stored as cancelled and the browsers to close."""
_OWN_WORDS = ("status", "trajectory", "judged")
"""Events of the engine that the driver makes itself, for all ranks together."""


class RankEngine(RolloutEngine):
    """An engine that also tells of each trajectory once it is on disk."""

    def __init__(self, *args: Any, tell: Callable[[Item], None], **others: Any) -> None:
        super().__init__(*args, **others)
        self._tell = tell

    def _store(self, trajectory: Trajectory) -> None:
        super()._store(trajectory)
        self._tell(Item(kind="stored", trajectory=lean(trajectory)))

    def _on_judged(self, trajectory: Trajectory, judgement: Judgement) -> None:
        super()._on_judged(trajectory, judgement)
        self._tell(Item(kind="judged", trajectory=lean(trajectory)))


class RolloutRank:
    """What Ray makes an actor of. Its methods are called by the driver only, with JSON."""

    def __init__(self) -> None:
        self._outbox: Outbox | None = None
        self._queue: RankQueue | None = None
        self._engine: RankEngine | None = None
        self._work: asyncio.Task[None] | None = None
        self._lease: asyncio.Task[None] | None = None
        self._talking = asyncio.Lock()
        self._followed = 0
        self._heard_at = time.monotonic()
        self._fault: Fault | None = None

    async def arrive(self, posting: str) -> str:
        """Say who and where this is, and whether the run's directory is the driver's."""
        self._posting = Posting.model_validate_json(posting)
        self._outbox = Outbox()
        fault = None
        if not await wait_for_file(Path(self._posting.marker), MARKER_SECONDS):
            fault = Fault(name=UsageError.__name__, message=f"{self._posting.root} is not the driver's folder")
        else:
            await asyncio.to_thread(Path(f"{self._posting.marker}.{self._posting.rank}").touch)
        arrival = Arrival(
            host=socket.gethostname(),
            pid=os.getpid(),
            version=webgym_cli.__version__,
            python=platform.python_version(),
            fault=fault,
        )
        return arrival.model_dump_json()

    async def begin(self, opener: ResourceFactory, secrets: dict[str, str]) -> None:
        """Start the engine. `secrets`: values of environment variables that this node may lack."""
        for name, value in secrets.items():
            os.environ.setdefault(name, value)
        self._heard_at = time.monotonic()
        self._work = asyncio.create_task(self._run(opener))
        self._lease = asyncio.create_task(self._keep_lease())

    async def exchange(self, orders: str) -> str:
        """Follow orders, once, and answer when there is something to tell, after `PULSE` seconds at the latest."""
        self._heard_at = time.monotonic()
        async with self._talking:
            given, outbox = Orders.model_validate_json(orders), self._out
            outbox.forget(given.heard)
            if given.number > self._followed:
                self._followed = given.number
                self._follow(given)
            with suppress(TimeoutError):
                async with asyncio.timeout(0 if self._ended else PULSE):
                    await outbox.news.wait()
            self._heard_at = time.monotonic()
            return self._report().model_dump_json(by_alias=True)

    async def dismiss(self, heard: int) -> str:
        """End the engine, if it still runs, and answer with all that was not heard."""
        await self._stop()
        self._out.forget(heard)
        return self._report().model_dump_json(by_alias=True)

    @property
    def _out(self) -> Outbox:
        if self._outbox is None:
            raise RuntimeError("this rank has not arrived")
        return self._outbox

    @property
    def _ended(self) -> bool:
        return self._work is not None and self._work.done()

    def _follow(self, orders: Orders) -> None:
        if self._queue is not None:
            self._queue.follow(orders)
        if orders.cut and self._engine is not None:
            self._engine.stop_early()

    def _report(self) -> Report:
        engine, wanting = self._engine, self._queue.wanting if self._queue else 0
        if self._ended and engine:
            self._out.status = engine.monitor.snapshot()
        return self._out.report(
            wanting=0 if self._ended else wanting,
            ended=self._ended,
            judge_down=engine.judge_down if engine else "",
            fault=self._fault,
        )

    async def _run(self, opener: ResourceFactory) -> None:
        posting, run = self._posting, RunDir(Path(self._posting.root))
        try:
            plan = await asyncio.to_thread(_plan, posting, run)
            self._queue = RankQueue({episode.id: episode for episode in plan.episodes}, self._out)
            async with opener(run, posting.settings, posting.acting, posting.environment) as parts:
                self._engine = RankEngine(
                    plan,
                    run,
                    posting.settings,
                    parts.agent,
                    parts.pool,
                    self._note,
                    parts.judge,
                    posting.rank,
                    self._queue,
                    tell=self._out.put,
                )
                await self._engine.collect()
        except WebGymError as error:
            self._fault = Fault.of(error)
        except Exception as error:  # noqa: BLE001 - the boundary to the driver: what nobody foresaw must be told there
            self._fault = Fault(name=WebGymError.__name__, message=f"{type(error).__name__}: {error}")
        finally:
            self._out.news.set()

    def _note(self, event: Event) -> None:
        if event["event"] == "status":
            self._out.status = {key: value for key, value in event.items() if key not in ("event", "transient")}
        if event["event"] not in _OWN_WORDS:
            self._out.put(Item(kind="event", event=event))

    async def _stop(self) -> None:
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait((self._work,), timeout=_CLOSING)

    async def _keep_lease(self) -> None:
        # Nobody tells that nothing was heard.
        while not self._ended and time.monotonic() - self._heard_at < LEASE:  # noqa: ASYNC110
            await asyncio.sleep(1)
        if not self._ended:
            await self._stop()
            os._exit(VenvError.exit_code)


def _plan(posting: Posting, run: RunDir) -> RolloutPlan:
    episodes = read_plan(run, posting.split, posting.iteration)
    known = {episode.id: episode for episode in episodes}
    return RolloutPlan(
        split=posting.split,
        iteration=posting.iteration,
        policy=posting.policy,
        episodes=episodes,
        owed=tuple(ticket.owed(known) for ticket in posting.share),
        given_up=posting.given_up,
    )
