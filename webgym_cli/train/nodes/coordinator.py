"""Node 0 of a training over several nodes: the others connect to it, send their status and learn what to run.

A connection that ends is a killed process, silence a hung one or a lost network.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass

from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, Terminated, WebGymError
from webgym_cli.store.run import RunDir
from webgym_cli.train.nodes.messages import (
    LINE_LIMIT,
    CoordinatorAddress,
    NodeHello,
    NodeStatus,
    Order,
    coordinator_file,
    receive,
    send,
)
from webgym_cli.train.nodes.topology import NodeTopology, from_env
from webgym_cli.util.files import write_json

# Seconds for the nodes to fetch how the command ended.
END_SECONDS = 3.0


@dataclass(slots=True)
class PeerNode:
    """A node that has connected."""

    hello: NodeHello
    status: NodeStatus = NodeStatus()  # noqa: RUF009 - frozen
    seen: float = 0.0
    """When its status came, by the monotonic clock."""
    lost: str = ""
    """Why it counts as lost."""

    @property
    def name(self) -> str:
        """The node in messages."""
        return f"node {self.hello.rank} ({self.hello.host})"


class Coordinator(threading.Thread):
    """Node 0's listener. A thread of its own: long work in the foreground must not look like a dead node."""

    def __init__(self, topology: NodeTopology, timeout: float) -> None:
        super().__init__(name="coordinator", daemon=True)
        self.topology = topology
        self.timeout = timeout
        """Seconds of silence after which a node counts as lost."""
        self.peers: dict[int, PeerNode] = {}
        """By rank."""
        self.order = Order()
        """What every node is to do now."""
        self._token = secrets.token_hex(16)
        self._ready = threading.Event()
        self._failure: OSError | None = None
        self._connections: set[asyncio.Task[None]] = set()

    def open(self) -> CoordinatorAddress:
        """Listen, and return where. Raises `JobError` without a port."""
        self.start()
        self._ready.wait()
        if self._failure is not None:
            raise JobError(f"node 0 can't listen for the other nodes: {self._failure}") from self._failure
        address, host = self.topology.master, socket.gethostname()
        return CoordinatorAddress(address=address, port=self._port, token=self._token, host=host)

    def close(self, code: int, message: str) -> None:
        """Tell the other nodes how the command ended, and end."""
        self.order = Order(end=(code, message))
        self._loop.call_soon_threadsafe(self._closing.set)
        self.join()

    def missing(self) -> list[int]:
        """Return the ranks that are not connected."""
        ranks = range(1, self.topology.count)
        return [rank for rank in ranks if rank not in self.peers or self.peers[rank].lost]

    def run(self) -> None:
        """Serve until `close`."""
        try:
            asyncio.run(self._serve())
        except OSError as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        # A port of its own beside torchrun's, which exists only while a training runs.
        server = await asyncio.start_server(self._accept, None, 0, limit=LINE_LIMIT, family=socket.AF_INET)
        async with server:
            self._port = int(server.sockets[0].getsockname()[1])
            self._ready.set()
            await self._closing.wait()
            if self._connections:
                await asyncio.wait(self._connections, timeout=END_SECONDS)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._listen(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # Not one of our nodes, or one that went at once.
            with suppress(OSError, ValueError):
                hello = NodeHello.model_validate_json(await receive(reader, self.timeout))
                if hmac.compare_digest(hello.token, self._token):
                    refusal = self._refuse(hello)
                    await send(writer, refusal or self.order)
                    if refusal is None:
                        self.peers[hello.rank] = peer = PeerNode(hello)
                        await self._follow(peer, reader, writer)
        finally:
            writer.close()

    async def _follow(self, peer: PeerNode, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                peer.status = NodeStatus.model_validate_json(await receive(reader, self.timeout))
                peer.seen = time.monotonic()
                await send(writer, self.order)
        except TimeoutError:
            peer.lost = f"it is not heard from for {self.timeout:g} s (train.node_timeout)"
        except OSError:
            peer.lost = "its process has ended"

    def _refuse(self, hello: NodeHello) -> Order | None:
        if hello.nodes != self.topology.count:
            where = f"{self.topology.count} on node 0 ({socket.gethostname()})"
            return Order(error="UsageError", message=f"NNODES is {hello.nodes} here and {where}")
        other = self.peers.get(hello.rank)
        if other is not None and not other.lost:
            holder = f"process {other.hello.pid} on {other.hello.host}"
            return Order(error="RunLockedError", message=f"{holder} is node {hello.rank} already")
        return None


# That of the command which runs.
_COORDINATOR: ContextVar[Coordinator | None] = ContextVar("coordinator", default=None)


def current_coordinator() -> Coordinator:
    """Return that of `coordinate`. Raises `JobError` outside of it."""
    coordinator = _COORDINATOR.get()
    if coordinator is None:
        raise JobError("a training over several nodes outside of `coordinate`")
    return coordinator


@contextmanager
def coordinate(run: RunDir, settings: Settings, environ: Mapping[str, str] | None = None) -> Iterator[None]:
    """Let the other nodes join this command while the block runs; nothing where it runs on one node."""
    topology = from_env(os.environ if environ is None else environ)
    if topology is None:
        yield
        return
    coordinator = Coordinator(topology, settings.train.node_timeout)
    address = coordinator.open()
    token = _COORDINATOR.set(coordinator)
    code, message = 1, "it failed"
    try:
        run.nodes.mkdir(parents=True, exist_ok=True)
        write_json(coordinator_file(run), address.model_dump(mode="json"))
        yield
        code, message = 0, ""
    except WebGymError as error:
        code, message = error.exit_code, str(error)
        raise
    except KeyboardInterrupt:
        code, message = 130, "interrupted"
        raise
    except Terminated:
        code, message = 143, "terminated"
        raise
    finally:
        _COORDINATOR.reset(token)
        coordinator.close(code, message)
        coordinator_file(run).unlink(missing_ok=True)
