"""Runs the episodes of a rollout on the nodes of a Ray cluster: one actor per node, each attempt an awaited call."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from webgym_cli.agent.reply import ServerCounters
from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, StoreError, UsageError, VenvError, WebGymError
from webgym_cli.jobs.ray_cluster import START_SECONDS, ActorLostError, Node, RayCluster, check_actor
from webgym_cli.jobs.workers import gather_to_end
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.monitoring.snapshot import idle_timings, merge_servers
from webgym_cli.rollout.monitoring.stages import StageTimer
from webgym_cli.rollout.plan import PendingEpisode
from webgym_cli.rollout.ray.reachability import has_loopback_host
from webgym_cli.rollout.ray.worker import RolloutWorker
from webgym_cli.rollout.resources import POLICY_KEY, PolicyEndpoint
from webgym_cli.store.run import RunDir

# Seconds without an answer to `status` after which a worker counts as hanging and is killed.
SILENCE = 90.0
# Deadline for a worker to return its cancelled episodes, and to close its browsers.
STOP_SECONDS = 40.0
POLL_SECONDS = 0.5
NEW_NODES_SECONDS = 10.0
_AGAIN = "run the same command again: what is stored stays"


@dataclass(slots=True, eq=False)
class NodeWorker:
    """A worker as the driver knows it."""

    number: int
    node: Node
    handle: Any
    slots: int = 0
    running: int = 0

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"rank {self.number} on {self.node.name} ({self.node.address})"


@dataclass(slots=True)
class RayRunner:
    """An `EpisodeRunner` over a cluster. Use `open_ray_runner`."""

    directory: RunDir
    settings: Settings
    cluster: RayCluster
    endpoint: PolicyEndpoint
    environment: str
    sink: EventSink
    own_urls: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Base URLs of the policy's servers that a node has for itself, by its id."""
    stages: StageTimer = field(default_factory=lambda: StageTimer(time.monotonic))
    on_slots_added: Callable[[int], None] | None = None
    name: str = field(init=False)
    _workers: dict[int, NodeWorker] = field(default_factory=dict)
    _nodes: set[str] = field(default_factory=set)
    """Ids of the nodes that have, or had, a worker."""
    _lost: int = 0
    _last_error: WebGymError | None = None
    _statuses: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Last status of each worker, lost ones included: their timings still count."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Take the policy's name."""
        self.name = self.endpoint.name

    @property
    def slots(self) -> int:
        """Number of episodes that can run at once, over all workers."""
        return sum(worker.slots for worker in self._workers.values())

    async def run(self, owed: PendingEpisode) -> Trajectory | None:
        """Run one attempt on a free worker; on another one when that is lost. Raises `JobError` when none is left."""
        while True:
            worker = await self._acquire()
            try:
                trajectory, self._statuses[worker.number] = await self._run_on(worker, owed)
                return trajectory
            except ActorLostError as error:
                await self._drop(worker, str(error))
            except WebGymError as error:
                raise type(error)(f"{worker.name}: {error}", hint=error.hint) from error
            finally:
                worker.running -= 1
                self._changed.set()

    def stop(self) -> None:
        """Have all workers return their episodes as cancelled."""
        for worker in self._workers.values():
            self._start_task(self._stop_worker(worker))

    def servers(self) -> ServerCounters:
        """Return the request counters of all workers: each balances its own requests."""
        return merge_servers([status["servers"] for status in self._statuses.values()])

    def worker_timings(self) -> list[dict[str, Any]]:
        """Return the last status of each worker, lost ones included."""
        return list(self._statuses.values())

    def facts(self) -> dict[str, Any]:
        """Return how many workers there were, and how many were lost."""
        return {"ranks": len(self._nodes), "ranks_lost": self._lost}

    async def start(self) -> None:
        """Start a worker on each node. Raises `UsageError` where a node is unfit or the cluster has no free one."""
        await self._add_workers()
        if not self._nodes:
            raise UsageError(
                "no node of the Ray cluster can run a rank",
                hint=f"ray status: each rank takes {self.settings.rollout.ray_cpus:g} CPU (rollout.ray_cpus)",
            )
        if not self._workers:
            raise self._no_worker()
        self._start_task(self._watch_nodes())

    async def close(self) -> None:
        """Close the browsers of all workers and end their processes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(self._close_worker(worker) for worker in self._workers.values()))

    async def _acquire(self) -> NodeWorker:
        while True:
            if not self._workers:
                raise self._no_worker()
            # The least loaded one, relative to its size: nodes may differ in cores and memory.
            free = [worker for worker in self._workers.values() if worker.running < worker.slots]
            if free:
                worker = min(free, key=lambda worker: worker.running / worker.slots)
                worker.running += 1
                return worker
            self._changed.clear()
            await self._changed.wait()

    async def _run_on(self, worker: NodeWorker, owed: PendingEpisode) -> tuple[Trajectory | None, dict[str, Any]]:
        call: asyncio.Future[tuple[Trajectory | None, dict[str, Any]]] = asyncio.ensure_future(
            self.cluster.call(worker.handle.run_episode, owed)
        )
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            # The command ends. The worker returns the steps so far, which are stored as cancelled.
            self._start_task(self._stop_worker(worker))
            await asyncio.wait((call,), timeout=STOP_SECONDS)
            if not call.done() or call.exception():
                raise
            return call.result()
        finally:
            call.cancel()

    async def _add_workers(self) -> None:
        offered = await asyncio.to_thread(self.cluster.nodes, self.settings.rollout.ray_cpus)
        fresh = [node for node in offered if node.id not in self._nodes]
        if not fresh:
            return
        first = len(self._nodes)
        # Before the actors exist: a node whose actor fails is not tried again by the next look.
        self._nodes.update(node.id for node in fresh)
        started = (self._add_worker(number, node) for number, node in enumerate(fresh, first))
        await gather_to_end(*started)

    async def _add_worker(self, number: int, node: Node) -> None:
        cluster, settings, root = self.cluster, self.settings, self.directory.root
        worker = NodeWorker(number, node, cluster.create_actor(RolloutWorker, node, cpus=settings.rollout.ray_cpus))
        try:
            info = await check_actor(cluster, node, worker.handle, root)
            opening = (str(root), settings, self._endpoint_of(node), self.environment, self._secrets())
            worker.slots = await cluster.call(worker.handle.open, *opening, seconds=START_SECONDS)
        except (ActorLostError, WebGymError) as error:
            await cluster.kill(worker.handle)
            if isinstance(error, UsageError | StoreError) and not isinstance(error, VenvError):
                raise
            self._record_loss(worker, error)
            return
        self._workers[number] = worker
        place = {"rank": number, "host": info["host"], "node": node.id, "pid": info["pid"]}
        self.sink(make_event("rank", **place, message=f"{worker.name} is at work"))
        self._start_task(self._poll(worker))
        self._changed.set()
        if self.on_slots_added is not None:
            self.on_slots_added(worker.slots)

    def _endpoint_of(self, node: Node) -> PolicyEndpoint:
        """Return the policy for a node's ranks: by its own servers, where it has any. Raises `JobError` without."""
        urls = self.own_urls.get(node.id)
        if urls is None and node.address != self.cluster.here and any(map(has_loopback_host, self.endpoint.base_urls)):
            raise JobError("it has no policy server, and those of other nodes are out of its reach (serve.host)")
        # they serve weights that an adapter is merged into
        return self.endpoint if urls is None else self.endpoint.model_copy(update={"base_urls": urls, "model": ""})

    async def drop_node(self, node: str, reason: str) -> None:
        """Give the worker of a node up: its episodes run elsewhere."""
        for worker in [worker for worker in self._workers.values() if worker.node.id == node]:
            await self._drop(worker, reason)

    def _secrets(self) -> dict[str, str]:
        # They travel in a call's arguments, never in a file, a flag or a log.
        logins = self.settings.browser.http_credentials.values()
        names = (POLICY_KEY, *self.settings.webarena.password_variables(), *logins)
        return {name: os.environ[name] for name in names if os.environ.get(name)}

    async def _poll(self, worker: NodeWorker) -> None:
        try:
            while True:
                self._statuses[worker.number] = await self.cluster.call(worker.handle.status, seconds=SILENCE)
                await asyncio.sleep(POLL_SECONDS)
        except (ActorLostError, WebGymError) as error:
            await self._drop(worker, str(error))

    async def _watch_nodes(self) -> None:
        while True:
            await asyncio.sleep(NEW_NODES_SECONDS)
            try:
                await self._add_workers()
            except WebGymError as error:  # a node that joins late and is unfit does not end the others' work
                self.sink({"event": "note", "message": f"a node is left out: {error}"})

    async def _drop(self, worker: NodeWorker, reason: str) -> None:
        """Give a worker up: its episodes run elsewhere. Safe to repeat."""
        if self._workers.pop(worker.number, None) is None:
            return
        if status := self._statuses.get(worker.number):
            self._statuses[worker.number] = idle_timings(status)
        self._record_loss(worker, JobError(reason))
        if worker.running and self._workers:
            self.sink({"event": "note", "message": f"{worker.name}: episodes moved to other nodes: {worker.running}"})
        self._changed.set()
        # One that only hangs must not go on; its calls fail, and their episodes run elsewhere.
        await self.cluster.kill(worker.handle)

    def _record_loss(self, worker: NodeWorker, error: Exception) -> None:
        self._lost += 1
        kind = type(error) if isinstance(error, WebGymError) else JobError
        self._last_error = kind(f"{worker.name}: {error}", hint=getattr(error, "hint", "") or _AGAIN)
        place = {"rank": worker.number, "host": worker.node.name}
        self.sink(make_event("rank_lost", **place, message=f"{worker.name} is out: {error}"))

    def _no_worker(self) -> WebGymError:
        last = self._last_error or JobError("the Ray cluster is gone", hint=_AGAIN)
        return type(last)(f"{last}; no rank is left", hint=last.hint)

    async def _stop_worker(self, worker: NodeWorker) -> None:
        with suppress(ActorLostError, WebGymError):  # its calls end by themselves then
            await self.cluster.call(worker.handle.stop, seconds=STOP_SECONDS)

    async def _close_worker(self, worker: NodeWorker) -> None:
        try:
            with suppress(ActorLostError, WebGymError):
                await self.cluster.call(worker.handle.close, seconds=STOP_SECONDS)
        finally:
            await self.cluster.kill(worker.handle)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)  # the loop itself holds tasks only weakly
        task.add_done_callback(self._tasks.discard)


@asynccontextmanager
async def open_ray_runner(
    run: RunDir,
    settings: Settings,
    cluster: RayCluster,
    endpoint: PolicyEndpoint,
    environment: str,
    sink: EventSink,
    own_urls: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> AsyncIterator[RayRunner]:
    """Yield a runner with a worker on each node of the cluster that offers `rollout.ray_cpus` CPUs."""
    runner = RayRunner(run, settings, cluster, endpoint, environment, sink, own_urls)
    try:
        await runner.start()
        yield runner
    finally:
        await runner.close()
