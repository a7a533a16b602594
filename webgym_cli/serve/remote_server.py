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
from webgym_cli.jobs.ray_cluster import (
    MARKER_SECONDS,
    START_SECONDS,
    Node,
    NodeActor,
    NodeLostError,
    RayCluster,
    check_actor,
    end_actor,
    wait_for_file,
)
from webgym_cli.records.events import Event, EventSink, ServerEvent
from webgym_cli.serve.address import base_url
from webgym_cli.serve.execute import PolicyServer
from webgym_cli.serve.forwarder import PolicyForwarder
from webgym_cli.serve.node_servers import plan_node_servers
from webgym_cli.serve.weights import Digests, check_model

# Seconds between two liveness checks, and their timeout, after which a server counts as gone.
POLL_SECONDS = 2.0
SILENCE = 90.0
# User name of the forwarders; each has its own password.
_USER = "webgym"
# A weight update may take three timeouts: wait for running requests, load, and restart if loading fails.
_DEADLINES = 3
_AGAIN = "run the same command again: what is stored stays, and nodes that are gone are left out"


class ServerActor(NodeActor):
    """One server, on the GPUs that Ray assigned to this process. It never outlives the process."""

    _server: PolicyServer
    """Set by `open`."""

    def __init__(self) -> None:
        self._digests = Digests()
        self._forwarder: PolicyForwarder | None = None
        self._port = 0
        self._events: list[Event] = []
        # `RayCluster.call` may repeat a call, and a call continues after its caller has timed out.
        self._lock = asyncio.Lock()

    async def open(
        self, settings: Settings, model: str, logs: Path, lora_rank: int, address: str, port: int, password: str
    ) -> int:
        """Plan the server and open its forwarder on an address of this node; return the port. Idempotent."""
        async with self._lock:
            if not hasattr(self, "_server"):
                (plan,) = plan_node_servers(settings, model, replicas=1, lora_rank=lora_rank)
                self._server = PolicyServer(plan, logs, self._note, digests=self._digests)
                self._forwarder = PolicyForwarder(lambda: self._server.base_url, _USER, password)
                self._port = await self._forwarder.open(address, port)
            return self._port

    async def serve(self, model: str, adapters: Mapping[str, str]) -> str:
        """Serve weights and LoRA adapters as `PolicyServer.serve`; return the digest of the weights."""
        async with self._lock:
            for folder in (model, *adapters.values()):
                if Path(folder).is_absolute():
                    await wait_for_file(Path(folder), MARKER_SECONDS)
            await self._server.serve(model, adapters)
            return await self._digests.of(model)

    async def add_adapter(self, name: str, folder: str) -> str:
        """Load a LoRA adapter; return the reason of a failure, empty on success."""
        async with self._lock:
            await wait_for_file(Path(folder), MARKER_SECONDS)
            return await self._server.add_adapter(name, folder)

    async def drop_adapters(self, kept: Collection[str]) -> None:
        """Serve other LoRA adapters than these no longer."""
        async with self._lock:
            await self._server.drop_adapters(kept)

    async def take_events(self) -> list[Event]:
        """Return and clear the server's events since the last call."""
        events, self._events = self._events, []
        return events

    async def check(self) -> None:
        """Raise `JobError` if the server has died; skipped during a change."""
        if not self._lock.locked():
            await self._server.check()

    async def close(self) -> None:
        """Stop the server."""
        if self._forwarder is not None:
            await self._forwarder.close()
        if hasattr(self, "_server"):
            await self._server.stop()

    def _note(self, event: Event) -> None:
        if "bar" not in event:  # progress events of a start are dropped
            self._events.append(event)


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
    """Log folder of this server."""
    lora_rank: int
    """Maximum rank of LoRA adapters; 0: no adapters."""
    sink: EventSink
    digests: Digests
    _password: str = field(default_factory=secrets.token_urlsafe)
    _port: int = 0
    _model: str = ""
    _adapters: dict[str, str] = field(default_factory=dict)
    _handle: Any = None

    @property
    def base_url(self) -> str:
        """OpenAI-compatible base URL with user and password; empty before the first start."""
        if not self._port:
            return ""
        parts = urlsplit(base_url(self.node.address, self._port))
        return parts._replace(netloc=f"{_USER}:{self._password}@{parts.netloc}").geturl()

    @property
    def name(self) -> str:
        """Node name in messages."""
        return f"{self.node.name} ({self.node.address})"

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
                message = f"{self.name} is gone, its policy server is started again: {error}"
                self.sink(ServerEvent(event="swap_failed", reason=str(error), message=message))
                await self.stop()
        await self.start()

    async def start(self) -> None:
        """Start the server with the last weights and adapters. On an error the server is stopped.

        Raises `UsageError` if the node does not see the run, `JobError` if it can't serve; both name the node.
        """
        opening = self.settings, self._model, self.logs, self.lora_rank, self.node.address, self._port, self._password
        message = f"{self.name}: a policy server starts; logs: {self.logs}"  # emitted first: the start may take minutes
        self.sink({"event": "note", "message": message})
        handle = self._handle = self.cluster.create_actor(
            ServerActor, self.node, cpus=0, gpus=self.settings.serve.workers
        )
        try:
            await check_actor(self.cluster, self.node, handle, self.root)
            self._port = await self._call("open", *opening)
            await self._renew()
        except NodeLostError as error:
            await self.stop()
            raise JobError(f"{self.name} serves no policy: {error}", hint=_AGAIN) from error
        # Also on cancellation: a half-started server would keep its GPUs.
        except BaseException:
            await self.stop()
            raise

    async def add_adapter(self, name: str, folder: str) -> str:
        """Load a LoRA adapter without pausing requests; return the reason of a failure, empty on success."""
        try:
            why: str = await self._call("add_adapter", name, folder)
        except (NodeLostError, WebGymError) as error:
            return str(error)
        if not why:
            self._adapters[name] = folder
        return why

    async def drop_adapters(self, kept: Collection[str]) -> None:
        """Serve other LoRA adapters than these no longer."""
        self._adapters = {name: folder for name, folder in self._adapters.items() if name in kept}
        try:
            await self._call("drop_adapters", tuple(kept))
        except (NodeLostError, WebGymError) as error:
            self.sink(ServerEvent(event="unload_failed", reason=str(error), message=f"adapters stay loaded: {error}"))

    async def watch(self) -> None:
        """Wait while the server runs. Raises `JobError` when it or its node is gone; returns after `stop`."""
        while (handle := self._handle) is not None:
            try:
                await self.cluster.call(handle.check, seconds=SILENCE)
            except (NodeLostError, WebGymError) as error:
                if handle is self._handle:
                    raise JobError(f"{self.name}: its policy server is gone: {error}", hint=_AGAIN) from error
            await asyncio.sleep(POLL_SECONDS)

    async def stop(self) -> None:
        """Stop the server and its actor. Idempotent."""
        handle, self._handle = self._handle, None
        if handle is not None:
            await end_actor(self.cluster, handle, SILENCE)

    async def _renew(self) -> None:
        """Make the actor serve the current weights and adapters. Raises `JobError` if it reads other weights here."""
        seen = await self._call("serve", self._model, self._adapters)
        if seen != await self.digests.of(self._model):
            raise JobError(f"{self.name} reads other weights in {self._model} than this node", hint=_AGAIN)

    async def _call(self, method: str, *arguments: Any) -> Any:
        """Call the actor and emit its events. Raises `NodeLostError`, and its errors prefixed with the node's name."""
        if self._handle is None:
            raise NodeLostError(f"{self.name} has no policy server")
        seconds = START_SECONDS + _DEADLINES * self.settings.serve.startup_timeout
        try:
            result = await self.cluster.call(getattr(self._handle, method), *arguments, seconds=seconds)
            for event in await self.cluster.call(self._handle.take_events, seconds=SILENCE):
                self.sink(event | {"message": f"{self.name}: {event['message']}"})
        except WebGymError as error:
            raise type(error)(f"{self.name}: {error}", hint=error.hint) from error
        return result


def plan_remote_servers(
    cluster: RayCluster, root: Path, opening: tuple[Settings, Path, int], sink: EventSink, digests: Digests
) -> Iterator[RemoteServer]:
    """Yield unstarted servers for the GPUs of the other nodes.

    `root`: the run's folder; `opening`: settings, log folder, LoRA rank.
    """
    settings, logs, lora_rank = opening
    nodes = cluster.nodes(settings.rollout.ray_cpus, settings.serve.workers)
    for number, node in enumerate([node for node in nodes if node.id != cluster.here_id], 1):
        for replica in range(settings.serve.fit(node.gpus)):
            folder = logs / f"node_{number}" / f"server_{replica}"
            yield RemoteServer(cluster, node, root, settings, folder, lora_rank, sink, digests)
