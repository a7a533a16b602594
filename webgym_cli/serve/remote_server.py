"""Policy servers on other nodes of a Ray cluster as members of a fleet, one actor per server.

They live as long as the fleet and update weights in place together with its other servers. They listen on their node's
loopback; other nodes reach them through a `PolicyForwarder` on the node's address.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, WebGymError
from webgym_cli.jobs import ray_cluster
from webgym_cli.jobs.ray_cluster import Node, NodeActor, NodeLostError, RayCluster, name_errors
from webgym_cli.records.events import Event, EventSink, ServerEvent
from webgym_cli.serve.execute import PolicyServer
from webgym_cli.serve.forwarder import PolicyForwarder
from webgym_cli.serve.plan import plan_servers
from webgym_cli.serve.weights import Digests, check_model
from webgym_cli.venvs.locate import resolve_device, role_python

# Seconds between two liveness checks.
POLL_SECONDS = 2.0
# A weight update may take three timeouts: wait for running requests, load, and restart if loading fails.
_DEADLINES = 3
_AGAIN = "run the same command again: what is stored stays, and nodes that are gone are left out"


class ServerActor(NodeActor):
    """One server, on the GPUs that Ray assigned to this process. It never outlives the process."""

    _server: PolicyServer  # set by `open`, as the forwarder is
    _forwarder: PolicyForwarder

    def __init__(self) -> None:
        self._digests = Digests()
        self._url = ""
        self._events: list[Event] = []
        # `RayCluster.call` may repeat a call, and a call continues after its caller has timed out.
        self._lock = asyncio.Lock()

    async def open(
        self, settings: Settings, model: str, logs: Path, lora_rank: int, address: str, port: int, password: str
    ) -> str:
        """Plan the server and open its forwarder on an address of this node; return its base URL. Idempotent."""
        async with self._lock:
            if not self._url:
                python, device = role_python(settings, "serve"), resolve_device(settings.venvs.device)
                here = {"host": "127.0.0.1", "port": 0, "gpus": (), "replicas": 1}
                settings = settings.with_changes(serve=here)
                (plan,) = plan_servers(settings, model, python, device, lora_rank=lora_rank)
                self._server = PolicyServer(plan, logs, self._events.append, self._digests)
                self._forwarder = PolicyForwarder(lambda: self._server.base_url, password)
                self._url = await self._forwarder.open(address, port)
            return self._url

    async def change(self, method: str, paths: Collection[str], *arguments: object) -> tuple[Any, str, list[Event]]:
        """Call a method of the server, which reads `paths`; return its result, the weights' digest, and new events."""
        async with self._lock:
            for path in filter(Path.is_absolute, map(Path, paths)):
                await ray_cluster.wait_for_file(path)
            result = await getattr(self._server, method)(*arguments)
            events = [event for event in self._events if "bar" not in event]  # without progress of a start
            self._events.clear()
            return result, await self._digests.of(self._server.model), events

    async def check(self) -> None:
        """Raise `JobError` if the server has died; skipped during a change."""
        if not self._lock.locked():
            await self._server.check()

    async def close(self) -> None:
        """Stop the server."""
        if self._url:
            await self._forwarder.close()
            await self._server.stop()


@dataclass(slots=True, eq=False)
class RemoteServer:
    """Policy server on another node. Call `serve` as often as needed, and `stop` at the end.

    It never outlives this process: Ray ends the actor, which ends the server.
    """

    cluster: RayCluster
    node: Node
    root: Path
    """The run's folder."""
    settings: Settings
    logs: Path
    """Log folder of this server, which no other one has."""
    lora_rank: int
    """Maximum rank of LoRA adapters; 0: no adapters."""
    sink: EventSink
    digests: Digests
    base_url: str = ""
    """OpenAI-compatible base URL with user and password; empty before the first start."""
    _password: str = field(default_factory=secrets.token_urlsafe)
    _model: str = ""
    _adapters: dict[str, str] = field(default_factory=dict)
    _handle: Any = None

    @property
    def is_serving(self) -> bool:
        """Whether the server is started."""
        return self._handle is not None

    async def serve(self, model: str, adapters: Mapping[str, str] = MappingProxyType({})) -> None:
        """Serve weights and LoRA adapters: start the server or update its weights as needed.

        Raises the errors of `start`.
        """
        self._model, self._adapters = check_model(model), dict(adapters)
        if self._handle is not None:
            try:
                await self._renew()
                return
            except NodeLostError as error:
                if await self.is_node_gone():
                    raise JobError(f"{self.node.name} serves no policy: {error}", hint=_AGAIN) from error
                message = f"{self.node.name} is gone, its policy server is started again: {error}"
                self.sink(ServerEvent(event="swap_failed", reason=str(error), message=message))
                await self.stop()
        await self.start()

    async def start(self) -> None:
        """Start the server with the last weights and adapters. On an error the server is stopped.

        Raises `UsageError` if the node does not see the run, `JobError` if it can't serve; both name the node.
        """
        where = self.node.address, urlsplit(self.base_url).port or 0, self._password  # the old port, for its clients
        # emitted first: the start may take minutes
        self.sink({"event": "note", "message": f"{self.node.name}: a policy server starts; logs: {self.logs}"})
        handle = self._handle = self.cluster.create_actor(ServerActor, self.node, gpus=self.settings.serve.workers)
        try:
            await ray_cluster.check_actor(self.cluster, self.node, handle, self.root)
            opening = self.settings, self._model, self.logs, self.lora_rank, *where
            self.base_url = await self._call("open", *opening)
            await self._renew()
        except BaseException as error:  # also on cancellation: a half-started server would keep its GPUs
            await self.stop()
            if isinstance(error, NodeLostError):
                raise JobError(f"{self.node.name} serves no policy: {error}", hint=_AGAIN) from error
            raise

    async def is_node_gone(self) -> bool:
        """Whether the cluster has the node no longer."""
        return self.node.id not in {node.id for node in await asyncio.to_thread(self.cluster.nodes)}

    async def add_adapter(self, name: str, folder: str) -> str:
        """Load a LoRA adapter without pausing requests; return the reason of a failure, empty on success."""
        try:
            why: str = await self._change("add_adapter", (folder,), name, folder)
        except (NodeLostError, WebGymError) as error:
            return str(error)
        if not why:
            self._adapters[name] = folder
        return why

    async def drop_adapters(self, kept: Collection[str]) -> None:
        """Serve other LoRA adapters than these no longer."""
        if not self._adapters.keys() - set(kept):
            return
        self._adapters = {name: folder for name, folder in self._adapters.items() if name in kept}
        try:
            await self._change("drop_adapters", (), tuple(kept))
        except (NodeLostError, WebGymError) as error:
            self.sink(ServerEvent(event="unload_failed", reason=str(error), message=f"adapters stay loaded: {error}"))

    async def watch(self) -> None:
        """Wait while the server runs. Raises `JobError` when it or its node is gone; returns after `stop`."""
        while (handle := self._handle) is not None:
            try:
                await self.cluster.call(handle.check, seconds=ray_cluster.SILENCE)
            except (NodeLostError, WebGymError) as error:
                if handle is self._handle:
                    raise JobError(f"{self.node.name}: its policy server is gone: {error}", hint=_AGAIN) from error
            await asyncio.sleep(POLL_SECONDS)

    async def stop(self) -> None:
        """Stop the server and its actor. Idempotent."""
        handle, self._handle = self._handle, None
        if handle is not None:
            await ray_cluster.end_actor(self.cluster, handle)

    async def _renew(self) -> None:
        """Make the actor serve the current weights and adapters."""
        await self._change("serve", (self._model, *self._adapters.values()), self._model, self._adapters)

    async def _change(self, method: str, paths: Collection[str], *arguments: object) -> Any:
        """Call a method of the server and emit its events. Raises `JobError` if it reads other weights than here."""
        result, digest, events = await self._call("change", method, paths, *arguments)
        for event in events:
            self.sink(event | {"message": f"{self.node.name}: {event['message']}"})
        if digest != await self.digests.of(self._model):
            raise JobError(f"{self.node.name} reads other weights in {self._model} than this node", hint=_AGAIN)
        return result

    async def _call(self, method: str, *arguments: object) -> Any:
        """Call the actor. Raises `NodeLostError`, and its errors prefixed with the node's name."""
        if self._handle is None:
            raise NodeLostError(f"{self.node.name} has no policy server")
        seconds = ray_cluster.START_SECONDS + _DEADLINES * self.settings.serve.startup_timeout
        with name_errors(self.node.name):
            return await self.cluster.call(getattr(self._handle, method), *arguments, seconds=seconds)


def plan_remote_servers(
    cluster: RayCluster, root: Path, opening: tuple[Settings, Path, int], sink: EventSink, digests: Digests
) -> Iterator[RemoteServer]:
    """Yield unstarted servers for the GPUs of the other nodes.

    `root`: the run's folder; `opening`: settings, log folder, LoRA rank.
    """
    settings, logs, lora_rank = opening
    for node in cluster.nodes(settings.rollout.ray_cpus, settings.serve.workers, others=True):
        for replica in range(settings.serve.fit(node.gpus)):
            folder = logs / f"node_{node.host}_{node.id[:6]}" / f"server_{replica}"
            yield RemoteServer(cluster, node, root, settings, folder, lora_rank, sink, digests)
