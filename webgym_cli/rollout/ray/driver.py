"""Runs the episodes of a rollout on the nodes of a Ray cluster: one actor per node, each attempt an awaited call."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from webgym_cli.agent.reply import ServerCounters
from webgym_cli.config.model import Settings
from webgym_cli.config.secrets import list_variables
from webgym_cli.errors import JobError, StoreError, UsageError, VenvError, WebGymError
from webgym_cli.jobs.ray_cluster import START_SECONDS, Node, NodeLostError, RayCluster, check_actor, end_actor
from webgym_cli.jobs.workers import gather_to_end
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.monitoring.snapshot import idle_timings, merge_servers
from webgym_cli.rollout.monitoring.stages import StageTimer
from webgym_cli.rollout.plan import PendingEpisode
from webgym_cli.rollout.ray.reachability import has_loopback_host
from webgym_cli.rollout.ray.worker import RolloutWorker, ServeFn
from webgym_cli.rollout.resources import PolicyEndpoint
from webgym_cli.store.run import RunDir

# Timeout of `status` in seconds, after which a worker counts as hung and is killed.
SILENCE = 90.0
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
        return f"rank {self.number} on {self.node.name} ({self.node.address})"


@dataclass(slots=True)
class RayRunner:
    """An `EpisodeRunner` with a worker on each node of a cluster that offers `rollout.ray_cpus` CPUs.

    An async context manager: entering starts the workers, leaving closes their browsers and ends their processes.
    """

    directory: RunDir
    settings: Settings
    cluster: RayCluster
    endpoint: PolicyEndpoint
    environment: str
    sink: EventSink
    serve: ServeFn | None = None
    """Serves the policy on a node for its own worker; None: the policy servers are not webgym's."""
    stages: StageTimer = field(default_factory=StageTimer)
    on_slots_added: Callable[[int], None] | None = None
    _workers: dict[str, NodeWorker] = field(default_factory=dict)
    """Workers by node id, including lost ones: their nodes are not used again."""
    _losses: list[WebGymError] = field(default_factory=list)
    """Errors of the lost workers."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> RayRunner:
        """Start a worker on each node. Raises `UsageError` if a node is unfit or none can run a worker."""
        try:
            await self._add_workers()
            if not self._workers:
                raise UsageError(
                    "no node of the Ray cluster can run a rank",
                    hint=f"ray status: each rank takes {self.settings.rollout.ray_cpus:g} CPU (rollout.ray_cpus)",
                )
            if not self._alive:
                raise self._no_worker()
        except BaseException:
            await self.__aexit__()
            raise
        self._start_task(self._watch_nodes())
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the browsers of all workers and end their processes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(end_actor(self.cluster, worker.handle, STOP_SECONDS) for worker in self._alive))

    @property
    def name(self) -> str:
        """Name of the policy."""
        return self.endpoint.served.name

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
                trajectory, worker.status = await self._run_on(worker, owed)
                return trajectory
            except NodeLostError as error:
                await self._drop(worker, str(error))
            except WebGymError as error:
                raise type(error)(f"{worker.name}: {error}", hint=error.hint) from error
            finally:
                worker.running -= 1
                self._changed.set()

    def stop(self) -> None:
        """Make all workers return their running episodes as cancelled."""
        for worker in self._alive:
            self._start_task(self._stop_worker(worker))

    def servers(self) -> ServerCounters:
        """Return the request counters of all workers: each balances its own requests."""
        return merge_servers([status["servers"] for status in self.worker_timings()])

    def worker_timings(self) -> list[dict[str, Any]]:
        """Return the last status of each worker, lost ones included."""
        return [worker.status for worker in self._workers.values() if worker.status]

    def facts(self) -> dict[str, Any]:
        """Return the number of workers, and of lost ones."""
        return {"ranks": len(self._workers), "ranks_lost": len(self._losses)}

    async def _acquire(self) -> NodeWorker:
        while True:
            if not (alive := self._alive):
                raise self._no_worker()
            # The least loaded one, relative to its size: nodes may differ in cores and memory.
            free = [worker for worker in alive if worker.running < worker.slots]
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
        fresh = [node for node in offered if node.id not in self._workers]
        for node in fresh:
            gpus = self._count_servers(node) * self.settings.serve.workers
            cpus = self.settings.rollout.ray_cpus
            handle = self.cluster.create_actor(RolloutWorker, node, cpus=cpus, gpus=gpus)
            self._workers[node.id] = NodeWorker(len(self._workers), node, handle)
        await gather_to_end(*(self._open_worker(self._workers[node.id]) for node in fresh))

    async def _open_worker(self, worker: NodeWorker) -> None:
        cluster, settings, root, node = self.cluster, self.settings, self.directory.root, worker.node
        try:
            info = await check_actor(cluster, node, worker.handle, root)
            serves = self._count_servers(node) > 0 and await self._serve(worker)
            if not serves and node.address != cluster.here and any(map(has_loopback_host, self.endpoint.base_urls)):
                raise JobError("it has no policy server, and those of other nodes are out of its reach (serve.host)")
            opening = (str(root), settings, self.endpoint, self.environment, self._secrets())
            worker.slots = await cluster.call(worker.handle.open, *opening, seconds=START_SECONDS)
        except BaseException as error:
            await cluster.kill(worker.handle)
            if not isinstance(error, NodeLostError | WebGymError) or _is_unfit(error):
                raise
            self._record_loss(worker, error)
            return
        place = {"rank": worker.number, "host": info["host"], "node": node.id, "pid": info["pid"]}
        self.sink(make_event("rank", **place, message=f"{worker.name} is at work"))
        self._start_task(self._poll(worker))
        self._changed.set()
        if self.on_slots_added is not None:
            self.on_slots_added(worker.slots)

    def _count_servers(self, node: Node) -> int:
        """Return the number of policy servers on a node: as many as fit on its GPUs, 0 on this node."""
        return self.settings.serve.fit(node.gpus) if self.serve and node.id != self.cluster.here_id else 0

    async def _serve(self, worker: NodeWorker) -> bool:
        """Start the servers of a node and return whether they run. Raises `UsageError` if the node is unfit."""
        node, error = worker.node, ""
        seconds = START_SECONDS + self.settings.serve.startup_timeout
        try:
            await self.cluster.call(worker.handle.serve, self.serve, worker.number, seconds=seconds)
        except WebGymError as failure:
            if _is_unfit(failure):
                raise
            error = str(failure)
        message = f"{node.name} ({node.address}) serves " + (f"nothing: {error}" if error else "its own rank")
        self.sink(make_event("node_server", host=node.name, node=node.id, serves=not error, message=message))
        return not error

    def _secrets(self) -> dict[str, str]:
        # Passed as call arguments, so that they are in no file, flag or log.
        return {name: os.environ[name] for name in list_variables(self.settings) if os.environ.get(name)}

    async def _poll(self, worker: NodeWorker) -> None:
        try:
            while True:
                worker.status = await self.cluster.call(worker.handle.status, seconds=SILENCE)
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
        place = {"rank": worker.number, "host": worker.node.name}
        self.sink(make_event("rank_lost", **place, message=f"{worker.name} is out: {error}"))

    def _no_worker(self) -> WebGymError:
        last = self._losses[-1]
        return type(last)(f"{last}; no rank is left", hint=last.hint)

    async def _stop_worker(self, worker: NodeWorker) -> None:
        with suppress(NodeLostError, WebGymError):  # the pending calls of a lost worker fail by themselves
            await self.cluster.call(worker.handle.stop, seconds=STOP_SECONDS)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)  # the event loop holds only weak references to tasks
        task.add_done_callback(self._tasks.discard)


def _is_unfit(error: Exception) -> bool:
    """Whether an error concerns the whole command, not one node alone."""
    return isinstance(error, UsageError | StoreError) and not isinstance(error, VenvError)
