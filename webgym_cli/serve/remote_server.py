"""Policy servers on other nodes of a Ray cluster as members of this node's fleet: one actor a server.

They run for as long as the fleet does, and swap weights in place together with its other servers. They listen on their
node's loopback and are asked through a `PolicyForwarder` on its address.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, WebGymError
from webgym_cli.jobs.ray_cluster import (
    MARKER_SECONDS,
    START_SECONDS,
    ActorLostError,
    Node,
    NodeActor,
    RayCluster,
    check_actor,
    wait_for_file,
)
from webgym_cli.jobs.workers import cancel_tasks
from webgym_cli.records.events import Event, EventSink, ServerEvent
from webgym_cli.serve.address import base_url
from webgym_cli.serve.fleet import Fleet
from webgym_cli.serve.forwarder import PolicyForwarder
from webgym_cli.serve.node_servers import (
    POLL_SECONDS,
    SILENCE,
    count_servers,
    end_actor,
    find_serving_nodes,
    plan_node_fleet,
)
from webgym_cli.serve.weights import Digests, check_model

# The user of the forwarders; each has a password of its own.
_USER = "webgym"
# A change of weights waits for the requests under way, loads, and where that fails starts the server anew.
_DEADLINES = 3
_AGAIN = "run the same command again: what is stored stays, and nodes that are gone are left out"


class RemoteServerActor(NodeActor):
    """One server of a node. It never outlives this process."""

    def __init__(self) -> None:
        self._fleet: Fleet | None = None
        self._forwarder: PolicyForwarder | None = None
        self._watching: asyncio.Task[None] | None = None
        self._events: list[Event] = []
        self._port = 0
        # Ray repeats calls whose answer is lost, and a call goes on when nobody waits for it any more.
        self._lock = asyncio.Lock()

    async def open(
        self, settings: Settings, model: str, logs: str, lora_rank: int, address: str, port: int, password: str
    ) -> int:
        """Plan the server, and listen for requests to it on an address of this node; return the port."""
        async with self._lock:
            if self._fleet is None:
                self._fleet = fleet = plan_node_fleet(settings, model, logs, self._note, lora_rank=lora_rank)
                self._forwarder = PolicyForwarder(lambda: fleet.base_urls[0], _USER, password)
                self._port = await self._forwarder.open(address, port)
            return self._port

    async def serve(self, model: str, adapters: Mapping[str, str]) -> str:
        """Serve these weights and LoRA adapters, whatever that takes; return the digest of the weights."""
        fleet = self._open_fleet
        async with self._lock:
            for folder in (model, *adapters.values()):
                if Path(folder).is_absolute():
                    await wait_for_file(Path(folder), MARKER_SECONDS)
            if self._watching is not None:
                await cancel_tasks(self._watching)
            await fleet.serve(model, adapters)
            self._watching = asyncio.create_task(fleet.watch())
            return await fleet.digests.of(model)

    async def add_adapter(self, name: str, folder: str) -> bool:
        """Serve a LoRA adapter beside what is served; return whether it is."""
        async with self._lock:
            await wait_for_file(Path(folder), MARKER_SECONDS)
            return await self._open_fleet.add_adapter(name, folder)

    async def drop_adapters(self, kept: Collection[str]) -> None:
        """Serve other LoRA adapters than these no longer."""
        async with self._lock:
            await self._open_fleet.drop_adapters(kept)

    async def take_events(self) -> list[Event]:
        """Return what the server had to tell since the last call."""
        events, self._events = self._events, []
        return events

    async def check(self) -> None:
        """Raise what ended the server."""
        if self._watching is not None and self._watching.done():
            await self._watching

    async def close(self) -> None:
        """Stop the server."""
        if self._watching is not None:
            self._watching.cancel()
        if self._forwarder is not None:
            await self._forwarder.close()
        if self._fleet is not None:
            await self._fleet.stop()

    @property
    def _open_fleet(self) -> Fleet:
        if self._fleet is None:
            raise RuntimeError("this server has not been opened")
        return self._fleet

    def _note(self, event: Event) -> None:
        if "bar" not in event:  # the progress of a start
            self._events.append(event)


class RemoteServer:
    """A policy server on another node. `serve` weights with it as often as needed; `stop` it at the end.

    It never outlives this process: Ray ends its actor, and the actor's end ends it.
    """

    def __init__(
        self,
        cluster: RayCluster,
        node: Node,
        root: Path,
        opening: tuple[Settings, Path, int],
        sink: EventSink,
        digests: Digests,
    ) -> None:
        """Start nothing. `root`: the run's folder; `opening`: settings, folder of logs, rank of the LoRA adapters."""
        self._cluster = cluster
        self._node = node
        self._root = root
        self._settings, self._logs, self._lora_rank = opening
        self._sink = sink
        self._digests = digests
        self._password = secrets.token_urlsafe()
        self._port = 0
        self._model = ""
        self._adapters: dict[str, str] = {}
        self._handle: Any = None

    @property
    def base_url(self) -> str:
        """OpenAI base URL with user and password; empty before the first start."""
        if not self._port:
            return ""
        parts = urlsplit(base_url(self._node.address, self._port))
        return parts._replace(netloc=f"{_USER}:{self._password}@{parts.netloc}").geturl()

    @property
    def name(self) -> str:
        """Its node in messages."""
        return f"{self._node.name} ({self._node.address})"

    @property
    def is_serving(self) -> bool:
        """Whether it is started."""
        return self._handle is not None

    async def serve(self, model: str, adapters: Mapping[str, str] = MappingProxyType({})) -> None:
        """Serve these weights and LoRA adapters, whatever that takes: a start, new weights in place, or nothing.

        Raises as `start`.
        """
        self._model, self._adapters = check_model(model), dict(adapters)
        if self._handle is not None:
            try:
                await self._renew()
                return
            except ActorLostError as error:
                message = f"{self.name} is gone, its policy server is started again: {error}"
                self._sink(ServerEvent(event="swap_failed", reason=str(error), message=message))
                await self.stop()
        await self.start()

    async def start(self) -> None:
        """Start the server with what it served last. Nothing runs afterwards unless it returned.

        Raises `UsageError` for a node that does not see the run, `JobError` where it can't serve; the node is named.
        """
        serve = self._settings.serve
        one = self._settings.model_copy(update={"serve": serve.model_copy(update={"replicas": 1})})
        opening = one, self._model, str(self._logs), self._lora_rank, self._node.address, self._port, self._password
        message = f"{self.name}: a policy server starts; logs: {self._logs}"  # which may take minutes
        self._sink({"event": "note", "message": message})
        handle = self._handle = self._cluster.create_actor(RemoteServerActor, self._node, cpus=0, gpus=serve.workers)
        try:
            await check_actor(self._cluster, self._node, handle, self._root)
            self._port = await self._call("open", *opening)
            await self._renew()
        except ActorLostError as error:
            await self.stop()
            raise JobError(f"{self.name} serves no policy: {error}", hint=_AGAIN) from error
        # Also on cancellation: a half-started server would keep its GPUs.
        except BaseException:
            await self.stop()
            raise

    async def add_adapter(self, name: str, folder: str) -> str:
        """Serve a LoRA adapter beside what is served, while requests go on; return why that failed."""
        try:
            added = await self._call("add_adapter", name, folder)
        except (ActorLostError, WebGymError) as error:
            return str(error)
        if added:
            self._adapters[name] = folder
        return "" if added else f"{self.name} can't load it"

    async def drop_adapters(self, kept: Collection[str]) -> None:
        """Serve other LoRA adapters than these no longer."""
        self._adapters = {name: folder for name, folder in self._adapters.items() if name in kept}
        try:
            await self._call("drop_adapters", tuple(kept))
        except (ActorLostError, WebGymError) as error:
            self._sink(ServerEvent(event="unload_failed", reason=str(error), message=f"adapters stay loaded: {error}"))

    async def watch(self) -> None:
        """Wait for as long as the server runs. Raises `JobError` when it or its node is gone; returns after `stop`."""
        while (handle := self._handle) is not None:
            try:
                await self._cluster.call(handle.check, seconds=SILENCE)
            except (ActorLostError, WebGymError) as error:
                if handle is self._handle:
                    raise JobError(f"{self.name}: its policy server is gone: {error}", hint=_AGAIN) from error
            await asyncio.sleep(POLL_SECONDS)

    async def stop(self) -> None:
        """Stop the server and its actor. Safe to call again."""
        handle, self._handle = self._handle, None
        if handle is not None:
            await end_actor(self._cluster, handle)

    async def _renew(self) -> None:
        """Have the actor serve what is to be served, by the weights that this node reads there, too."""
        seen = await self._call("serve", self._model, self._adapters)
        if seen != await self._digests.of(self._model):
            raise JobError(f"{self.name} reads other weights in {self._model} than this node", hint=_AGAIN)

    async def _call(self, method: str, *arguments: Any) -> Any:
        """Call the actor. Raises `ActorLostError`, and its errors with the node's name before them."""
        if self._handle is None:
            raise ActorLostError(f"{self.name} has no policy server")
        seconds = START_SECONDS + _DEADLINES * self._settings.serve.startup_timeout
        try:
            result = await self._cluster.call(getattr(self._handle, method), *arguments, seconds=seconds)
            for event in await self._cluster.call(self._handle.take_events, seconds=SILENCE):
                self._sink(event | {"message": f"{self.name}: {event['message']}"})
        except WebGymError as error:
            raise type(error)(f"{self.name}: {error}", hint=error.hint) from error
        return result


def plan_remote_servers(
    cluster: RayCluster, root: Path, opening: tuple[Settings, Path, int], sink: EventSink, digests: Digests
) -> Iterable[RemoteServer]:
    """Yield the servers that fit on the other nodes' GPUs, not started."""
    settings, logs, lora_rank = opening
    for number, node in enumerate(find_serving_nodes(cluster, settings), 1):
        for replica in range(count_servers(node, settings)):
            where = logs / f"node_{number}" / f"server_{replica}"
            yield RemoteServer(cluster, node, root, (settings, where, lora_rank), sink, digests)
