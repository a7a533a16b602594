"""Servers of ours on the other nodes of a Ray cluster: one actor on each that offers GPUs, for the ranks of its node.

A rank asks the servers of its own node, by loopback: nothing is reachable from elsewhere. All of them serve the weights
in the run's folder, which every node sees, and end with the rollout, so that a training finds the GPUs free.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.errors import UsageError, VenvError, WebGymError
from webgym_cli.jobs.ray_cluster import START_SECONDS, ActorLostError, Node, NodeActor, RayCluster, check_actor
from webgym_cli.jobs.workers import gather_to_end
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.serve.fleet import Fleet
from webgym_cli.serve.plan import plan_servers
from webgym_cli.venvs.locate import resolve_device, role_python

# Between two looks whether a node's servers live, and seconds without an answer after which they count as gone.
POLL_SECONDS = 2.0
SILENCE = 90.0
_LOOPBACK = "127.0.0.1"


class ServerActor(NodeActor):
    """The servers of one node. They never outlive this process."""

    def __init__(self) -> None:
        self._fleet: Fleet | None = None
        self._watching: asyncio.Task[None] | None = None

    async def open(self, settings: Settings, model: str, logs: str) -> tuple[str, ...]:
        """Serve a model on the GPUs that Ray gave this process; return the base URLs. `logs`: a folder."""
        self._fleet = plan_node_fleet(settings, model, logs, _ignore)
        await self._fleet.serve(model)
        self._watching = asyncio.create_task(self._fleet.watch())
        return self._fleet.base_urls

    async def check(self) -> None:
        """Raise what ended the last server, where none is left."""
        if self._watching is not None and self._watching.done():
            await self._watching

    async def close(self) -> None:
        """Stop the servers."""
        if self._watching is not None:
            self._watching.cancel()
        if self._fleet is not None:
            await self._fleet.stop()


@dataclass(slots=True)
class NodeServers:
    """The servers on other nodes. Use `open_node_servers`."""

    cluster: RayCluster
    sink: EventSink
    base_urls: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By id of the node; for its own ranks alone."""
    on_lost: Callable[[str, str], Awaitable[None]] | None = None
    """Called with the id of a node whose servers are gone, and why."""
    _handles: dict[str, Any] = field(default_factory=dict)

    async def add(self, node: Node, gpus: int, root: Path, opening: tuple[Settings, str, str]) -> None:
        """Start the servers of a node; one that can't serve is told of. Raises `UsageError` where it is unfit."""
        handle = self._handles[node.id] = self.cluster.create_actor(ServerActor, node, cpus=0, gpus=gpus)
        seconds = START_SECONDS + opening[0].serve.startup_timeout
        try:
            await check_actor(self.cluster, node, handle, root)
            self.base_urls[node.id] = await self.cluster.call(handle.open, *opening, seconds=seconds)
        except (ActorLostError, WebGymError) as error:
            await self._remove(node.id)
            if isinstance(error, UsageError) and not isinstance(error, VenvError):
                raise
            message = f"{node.name} ({node.address}) serves nothing: {error}"
            self.sink(make_event("node_server", host=node.name, node=node.id, serves=False, message=message))
            return
        message = f"{node.name} ({node.address}) serves its own ranks, on {gpus} GPUs"
        self.sink(make_event("node_server", host=node.name, node=node.id, serves=True, message=message))

    async def watch(self) -> None:
        """Tell of nodes whose servers are gone, until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            for node in tuple(self.base_urls):
                try:
                    await self.cluster.call(self._handles[node].check, seconds=SILENCE)
                except (ActorLostError, WebGymError) as error:
                    await self._remove(node)
                    if self.on_lost is not None:
                        await self.on_lost(node, f"its policy servers are gone: {error}")

    async def close(self) -> None:
        """Stop all servers."""
        await asyncio.gather(*(self._remove(node) for node in tuple(self._handles)))

    async def _remove(self, node: str) -> None:
        self.base_urls.pop(node, None)
        await end_actor(self.cluster, self._handles.pop(node))


async def end_actor(cluster: RayCluster, handle: Any) -> None:
    """Stop an actor's servers, and end it whatever it does."""
    try:
        with suppress(ActorLostError, WebGymError):
            await cluster.call(handle.close, seconds=SILENCE)
    finally:
        await cluster.kill(handle)


def plan_node_fleet(settings: Settings, model: str, logs: str, sink: EventSink, *, lora_rank: int = 0) -> Fleet:
    """Return the servers, not started, for the GPUs that Ray gave this process. `logs`: a folder."""
    # on loopback, so that weights can be swapped in place
    here = settings.serve.model_copy(update={"host": _LOOPBACK, "port": 0, "gpus": ()})
    settings = settings.model_copy(update={"serve": here})
    python, device = role_python(settings, "serve"), resolve_device(settings.venvs.device)
    plans = plan_servers(settings, model, python, device, lora_rank=lora_rank)
    return Fleet(plans, Path(logs), sink, restarts=settings.serve.restarts)


def count_servers(node: Node, settings: Settings) -> int:
    """Return the number of servers that fit on a node's GPUs."""
    each = settings.serve.workers
    return min(node.gpus // each, settings.serve.replicas or node.gpus)


def find_serving_nodes(cluster: RayCluster, settings: Settings) -> list[Node]:
    """Return the other nodes that run ranks and offer GPUs enough for a server."""
    return [
        node for node in cluster.nodes(settings.rollout.ray_cpus, settings.serve.workers) if node.id != cluster.here_id
    ]


@asynccontextmanager
async def open_node_servers(
    root: Path, cluster: RayCluster, nodes: Sequence[Node], opening: tuple[Settings, str, str], sink: EventSink
) -> AsyncIterator[NodeServers]:
    """Yield the servers on these nodes. `root`: the run's folder; `opening`: settings, model and folder of logs.

    Raises `UsageError` for a node that is unfit.
    """
    servers = NodeServers(cluster, sink)
    settings, model, logs = opening
    try:
        started = []
        for number, node in enumerate(nodes, 1):
            gpus = count_servers(node, settings) * settings.serve.workers
            started.append(servers.add(node, gpus, root, (settings, model, f"{logs}/node_{number}")))
        await gather_to_end(*started)
        watching = asyncio.create_task(servers.watch())
        try:
            yield servers
        finally:
            watching.cancel()
    finally:
        await servers.close()


def _ignore(event: object) -> None:
    """Take no event: what a server of another node says is in its log."""
