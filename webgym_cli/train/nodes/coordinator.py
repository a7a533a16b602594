"""Node 0 of a training over several nodes: the others connect to it, send their status and learn what to run.

A connection that ends is a killed process, silence a hung one or a lost network.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass

from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, RunLockedError, Terminated, UsageError, WebGymError
from webgym_cli.records.base import Record
from webgym_cli.store.run import RunDir
from webgym_cli.train.nodes.messages import (
    LINE_LIMIT,
    POLL_SECONDS,
    CoordinatorAddress,
    NodeError,
    NodeHello,
    NodeLaunch,
    NodeStatus,
    Order,
)
from webgym_cli.train.nodes.topology import NodeTopology
from webgym_cli.util.files import write_json

# Seconds for the nodes to fetch the command's result.
END_SECONDS = 3.0
_HOW_TO_JOIN = "export the same NNODES, and a NODE_RANK of its own, on every node"
# Result of a cancelled command on every node.
_STOPPED = {KeyboardInterrupt: (130, "interrupted"), Terminated: (143, "terminated")}


@dataclass(slots=True)
class ConnectedNode:
    """A connected node, with its own message thread."""

    hello: NodeHello
    launch: NodeLaunch | None = None
    """The training that it takes part in."""
    status: NodeStatus = NodeStatus()  # noqa: RUF009 - frozen
    seen: float = 0.0
    """When its status came, by the monotonic clock."""
    lost: str = ""
    """Why it counts as lost."""

    @property
    def name(self) -> str:
        """The node in messages."""
        return f"node {self.hello.rank} ({self.hello.host})"

    async def train(self, launch: NodeLaunch, hint: str) -> None:
        """Run its trainer to the end. Raises its `WebGymError`, or `JobError`; when cancelled, its trainer ends."""
        self.launch = launch
        try:
            while (status := self.status).state != "done":
                if status.error is not None:
                    raise status.error.to_error(self.name, hint)
                if self.lost:
                    raise JobError(f"{self.name} left the training: {self.lost}", hint=hint)
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self.launch, since = None, time.monotonic()
            # an earlier status may have been sent before the node received the launch
            while not self.lost and (self.seen < since or self.status.state != "idle"):  # noqa: ASYNC110
                await asyncio.sleep(POLL_SECONDS)


class Coordinator(socketserver.ThreadingTCPServer):
    """Node 0's listener. Threads of its own: long work in the foreground must not look like a dead node."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, topology: NodeTopology, timeout: float) -> None:
        """Listen. Raises `JobError` without a port."""
        self.topology = topology
        self.silence = timeout
        """Seconds of silence after which a node counts as lost."""
        self.nodes: dict[int, ConnectedNode] = {}
        """By rank."""
        self.end: tuple[int, str] | None = None
        """Exit code of the command, once it has ended, and why it failed."""
        try:
            # A port of its own beside torchrun's, which exists only while a training runs.
            super().__init__(("", 0), _NodeConnection)
        except OSError as error:
            raise JobError(f"node 0 can't listen for the other nodes: {error}") from error
        port, host = self.socket.getsockname()[1], socket.gethostname()
        self.address = CoordinatorAddress(address=topology.master, port=port, token=secrets.token_hex(16), host=host)
        threading.Thread(target=self.serve_forever, args=(POLL_SECONDS,), daemon=True).start()

    def close(self, end: tuple[int, str]) -> None:
        """Tell the other nodes how the command ended, and end."""
        self.end, deadline = end, time.monotonic() + END_SECONDS
        while not all(node.lost for node in self.nodes.values()) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        self.shutdown()
        self.server_close()

    def missing(self) -> list[int]:
        """Return the ranks without a connection."""
        ranks = range(1, self.topology.count)
        return [rank for rank in ranks if rank not in self.nodes or self.nodes[rank].lost]

    async def wait_for_nodes(self, hint: str) -> list[ConnectedNode]:
        """Return the other nodes once all are connected. Raises `JobError` with this hint where one stays away."""
        deadline = time.monotonic() + self.silence
        while missing := self.missing():
            if time.monotonic() >= deadline:
                late = self.nodes.get(missing[0])
                name = late.name if late else f"node {missing[0]}"
                why = late.lost if late else _describe_silence(self.silence)
                raise JobError(f"{name} has not joined the training: {why}", hint=hint)
            await asyncio.sleep(POLL_SECONDS)
        return [node for _, node in sorted(self.nodes.items())]

    def admit(self, hello: NodeHello) -> ConnectedNode:
        """Return a new node. Raises `UsageError` or `RunLockedError` where it is refused."""
        if hello.nodes != self.topology.count:
            why = f"NNODES is {hello.nodes} here and {self.topology.count} on node 0 ({self.address.host})"
            raise UsageError(why, hint=_HOW_TO_JOIN)
        other = self.nodes.get(hello.rank)
        if other is not None and not other.lost:
            why = f"process {other.hello.pid} on {other.hello.host} is node {hello.rank} already"
            raise RunLockedError(why, hint=_HOW_TO_JOIN)
        self.nodes[hello.rank] = node = ConnectedNode(hello)
        return node


class _NodeConnection(socketserver.StreamRequestHandler):
    server: Coordinator

    def handle(self) -> None:
        self.request.settimeout(self.server.silence)
        # Not one of our nodes, or one that disconnected at once.
        with suppress(OSError, ValueError):
            hello = NodeHello.model_validate_json(self._receive())
            if not hmac.compare_digest(hello.token, self.server.address.token):
                return
            try:
                node = self.server.admit(hello)
            except WebGymError as error:
                self._send(Order(refusal=NodeError.of(error)))
            else:
                self._follow(node)

    def _follow(self, node: ConnectedNode) -> None:
        try:
            while True:
                self._send(Order(launch=node.launch, end=self.server.end))
                node.status = NodeStatus.model_validate_json(self._receive())
                node.seen = time.monotonic()
        except TimeoutError:
            node.lost = _describe_silence(self.server.silence)
        finally:
            node.lost = node.lost or "its process has ended"

    def _receive(self) -> bytes:
        if line := self.rfile.readline(LINE_LIMIT):
            return line
        raise ConnectionResetError

    def _send(self, message: Record) -> None:
        self.wfile.write(message.model_dump_json().encode() + b"\n")


def _describe_silence(seconds: float) -> str:
    return f"it is not heard from for {seconds:g} s (train.node_timeout)"


# That of the command which runs.
COORDINATOR: ContextVar[Coordinator] = ContextVar("coordinator")


@contextmanager
def coordinate(run: RunDir, settings: Settings, topology: NodeTopology) -> Iterator[Coordinator]:
    """Let the other nodes join this command while the block runs."""
    coordinator = Coordinator(topology, settings.train.node_timeout)
    token = COORDINATOR.set(coordinator)
    end = (1, "it failed")
    try:
        run.coordinator.parent.mkdir(parents=True, exist_ok=True)
        write_json(run.coordinator, coordinator.address.model_dump(mode="json"))
        yield coordinator
        end = (0, "")
    except WebGymError as error:
        end = error.exit_code, str(error)
        raise
    except tuple(_STOPPED) as error:
        end = _STOPPED[type(error)]
        raise
    finally:
        COORDINATOR.reset(token)
        coordinator.close(end)
        run.coordinator.unlink(missing_ok=True)
