"""Runs the episodes of a rollout on the nodes of a Ray cluster: one actor per node, each attempt an awaited call."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from webgym_cli.config.model import Settings
from webgym_cli.config.secrets import list_variables
from webgym_cli.errors import JobError, StoreError, UsageError, VenvError, WebGymError
from webgym_cli.jobs import ray_cluster
from webgym_cli.jobs.machine_time import MachineMeter
from webgym_cli.jobs.ray_cluster import Node, NodeLostError, RayCluster, check_actor, end_actor, name_errors
from webgym_cli.jobs.workers import cancel_tasks, gather_to_end
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.plan import PendingEpisode
from webgym_cli.rollout.ray_worker import RolloutWorker
from webgym_cli.rollout.resources import PolicyEndpoint
from webgym_cli.rollout.stage_timer import StageTimer, idle_timings
from webgym_cli.store.run import RunDir
from webgym_cli.util.proxies import is_this_machine

# Timeout for a worker to return its cancelled episodes, and to close its browsers.
STOP_SECONDS = 40.0
POLL_SECONDS = 0.5
NEW_NODES_SECONDS = 10.0
_AGAIN = "run the same command again: what is stored stays"


@dataclass(slots=True, eq=False)
class NodeWorker:
    """Driver-side state of a worker."""

    number: int
    node: Node
    handle: Any
    slots: int = 0
    """Number of slots; 0 before it is opened and after it is lost."""
    running: int = 0
    status: dict[str, Any] = field(default_factory=dict)
    """Last status; kept after a loss, because its timings still count."""

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"rank {self.number} on {self.node.name}"


@dataclass(slots=True)
class RayRunner:
    """Runs attempts for a rollout engine, with a worker on each node of a cluster that offers `rollout.ray_cpus` CPUs.

    An async context manager: entering starts the workers, leaving closes their browsers and ends their processes.
    """

    directory: RunDir
    settings: Settings
    cluster: RayCluster
    endpoint: PolicyEndpoint
    """The policy, for workers on this machine."""
    remote: PolicyEndpoint
    """The policy, for workers on other machines."""
    environment: str
    sink: EventSink
    stages: StageTimer = field(default_factory=StageTimer)
    on_slots_added: Callable[[int], None] | None = None
    _workers: dict[str, NodeWorker] = field(default_factory=dict)
    """Workers by node id, including lost ones: their nodes are not used again."""
    _losses: list[WebGymError] = field(default_factory=list)
    """Errors of the lost workers."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _meter: MachineMeter = field(init=False)

    def __post_init__(self) -> None:
        """Start the meter of the servers' GPUs."""
        self._meter = MachineMeter(self.endpoint.gpus)

    async def __aenter__(self) -> RayRunner:
        """Start a worker on each node. Raises `UsageError` if a node is unfit or none can run a worker."""
        try:
            await self._add_workers()
            if not self._alive:
                raise self._no_worker()
        except BaseException:
            await self.__aexit__()
            raise
        self._start_task(self._watch_nodes())
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the browsers of all workers and end their processes."""
        await cancel_tasks(*self._tasks)
        await asyncio.gather(*(end_actor(self.cluster, worker.handle, STOP_SECONDS) for worker in self._alive))

    @property
    def slots(self) -> int:
        """Number of concurrent episodes over all workers."""
        return sum(worker.slots for worker in self._workers.values())

    @property
    def _alive(self) -> list[NodeWorker]:
        return [worker for worker in self._workers.values() if worker.slots]

    async def run(self, owed: PendingEpisode) -> Trajectory | None:
        """Run one attempt on a free worker, and again on another one if that is lost.

        Raises the error of the last lost worker when none is left.
        """
        while True:
            worker = await self._acquire()
            try:
                with name_errors(worker.name):
                    trajectory, worker.status = await self._run_on(worker, owed)
                gpu_seconds = self._meter.take_lap()["gpu_seconds"]  # the servers' GPUs are not those of a worker
                return trajectory and trajectory.model_copy(update={"gpu_seconds": gpu_seconds})
            except NodeLostError as error:
                await self._drop(worker, str(error))
            finally:
                worker.running -= 1
                self._changed.set()

    def stop(self) -> None:
        """Make all workers return their running episodes as cancelled."""
        for worker in self._alive:
            self._start_task(self._stop_worker(worker))

    def worker_timings(self) -> list[dict[str, Any]]:
        """Return the last status of each worker, lost ones included."""
        return [worker.status for worker in self._workers.values() if worker.status]

    def facts(self) -> dict[str, Any]:
        """Return the number of workers, and of lost ones."""
        return {"ranks": len(self._workers), "ranks_lost": len(self._losses)}

    async def _acquire(self) -> NodeWorker:
        while alive := self._alive:
            # The least loaded one, relative to its size: nodes may differ in cores and memory.
            free = [worker for worker in alive if worker.running < worker.slots]
            if free:
                worker = min(free, key=lambda worker: worker.running / worker.slots)
                worker.running += 1
                return worker
            self._changed.clear()
            await self._changed.wait()
        raise self._no_worker()

    async def _run_on(self, worker: NodeWorker, owed: PendingEpisode) -> tuple[Trajectory | None, dict[str, Any]]:
        call: asyncio.Future[Any] = asyncio.ensure_future(self.cluster.call(worker.handle.run_episode, owed))
        try:
            await asyncio.shield(call)
        except asyncio.CancelledError:
            # The command ends. The worker returns the steps so far, which are stored as cancelled.
            self._start_task(self._stop_worker(worker))
            await asyncio.wait((call,), timeout=STOP_SECONDS)
            if not call.done() or call.exception():
                raise
        finally:
            call.cancel()
        result: tuple[Trajectory | None, dict[str, Any]] = call.result()
        return result

    async def _add_workers(self) -> None:
        cpus, added = self.settings.rollout.ray_cpus, []
        for node in await asyncio.to_thread(self.cluster.nodes, cpus):
            if node.id not in self._workers:
                handle = self.cluster.create_actor(RolloutWorker, node, cpus=cpus)
                self._workers[node.id] = worker = NodeWorker(len(self._workers), node, handle)
                added.append(self._open_worker(worker))
        await gather_to_end(*added)

    async def _open_worker(self, worker: NodeWorker) -> None:
        cluster, settings, root, node = self.cluster, self.settings, self.directory.root, worker.node
        try:
            info = await check_actor(cluster, node, worker.handle, root)
            endpoint = self.endpoint if node.address == cluster.here else self.remote
            # Passed as call arguments, so that they are in no file, flag or log.
            secrets = {name: os.environ[name] for name in list_variables(settings) if os.environ.get(name)}
            opening = (str(root), settings, endpoint, self.environment, secrets)
            worker.slots = await cluster.call(worker.handle.open, *opening, seconds=ray_cluster.START_SECONDS)
        except BaseException as error:
            await cluster.kill(worker.handle)
            # Wrong usage and a full disk concern the whole command, not one node alone.
            unfit = isinstance(error, UsageError | StoreError) and not isinstance(error, VenvError)
            if unfit or not isinstance(error, NodeLostError | WebGymError):
                raise
            self._record_loss(worker, error)
            return
        facts = {"rank": worker.number, "host": info["host"], "node": node.id, "pid": info["pid"]}
        self.sink(make_event("rank", **facts, message=f"{worker.name} is at work"))
        self._start_task(self._poll(worker))
        self._changed.set()
        if self.on_slots_added is not None:
            self.on_slots_added(worker.slots)

    async def _poll(self, worker: NodeWorker) -> None:
        try:
            while True:
                worker.status = await self.cluster.call(worker.handle.status, seconds=ray_cluster.SILENCE)
                await asyncio.sleep(POLL_SECONDS)
        except (NodeLostError, WebGymError) as error:
            await self._drop(worker, str(error))

    async def _watch_nodes(self) -> None:
        while True:
            await asyncio.sleep(NEW_NODES_SECONDS)
            try:
                await self._add_workers()
            except WebGymError as error:  # an unfit node that joins late must not stop the others
                self.sink({"event": "note", "message": f"a node is left out: {error}"})

    async def _drop(self, worker: NodeWorker, reason: str) -> None:
        """Mark a worker as lost and kill it; its episodes run elsewhere. Idempotent."""
        if not worker.slots:
            return
        worker.slots, worker.status = 0, worker.status and idle_timings(worker.status)
        self._record_loss(worker, JobError(reason))
        if worker.running and self._alive:
            self.sink({"event": "note", "message": f"{worker.name}: episodes moved to other nodes: {worker.running}"})
        self._changed.set()
        # A hung worker must not continue. Its calls fail, and their episodes run on other workers.
        await self.cluster.kill(worker.handle)

    def _record_loss(self, worker: NodeWorker, error: Exception) -> None:
        kind = type(error) if isinstance(error, WebGymError) else JobError
        self._losses.append(kind(f"{worker.name}: {error}", hint=getattr(error, "hint", "") or _AGAIN))
        words = f"{worker.name} is out: {error}"
        self.sink(make_event("rank_lost", rank=worker.number, host=worker.node.host, message=words))

    def _no_worker(self) -> WebGymError:
        if not self._losses:
            cpus = f"{self.settings.rollout.ray_cpus:g} CPU (rollout.ray_cpus)"
            return UsageError("no node of the Ray cluster can run a rank", hint=f"ray status: each rank takes {cpus}")
        last = self._losses[-1]
        return type(last)(f"{last}; no rank is left", hint=last.hint)

    async def _stop_worker(self, worker: NodeWorker) -> None:
        with suppress(NodeLostError, WebGymError):  # the pending calls of a lost worker fail by themselves
            await self.cluster.call(worker.handle.stop, seconds=STOP_SECONDS)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)  # the event loop holds only weak references to tasks
        task.add_done_callback(self._tasks.discard)


def require_reachable(cluster: RayCluster, settings: Settings, policy: str) -> None:
    """Raise `UsageError` if nodes on other machines would be given a loopback address. `policy`: `rollout.policy`."""
    far = [node for node in cluster.nodes(settings.rollout.ray_cpus) if node.address != cluster.here]
    hosts = (urlsplit(url.strip()).hostname or "" for url in policy.split(","))
    if far and (host := next(filter(is_this_machine, hosts), "")):
        raise UsageError(
            f"rollout.policy: {host} leads every node to itself, but {far[0].name} is another machine",
            hint="give an address of this machine that the other nodes can reach",
        )
