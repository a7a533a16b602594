"""Node 0 of a training over several nodes: the others connect to it, send their status and learn what to run.

A connection that ends is a killed process, silence a hung one or a lost network.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Iterator, Mapping
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
    NodeHello,
    NodeStatus,
    Order,
    coordinator_file,
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


class Coordinator(socketserver.ThreadingTCPServer):
    """Node 0's listener. Threads of its own: long work in the foreground must not look like a dead node."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, topology: NodeTopology, timeout: float) -> None:
        """Listen. Raises `JobError` without a port."""
        self.topology = topology
        self.silence = timeout
        """Seconds of silence after which a node counts as lost."""
        self.peers: dict[int, PeerNode] = {}
        """By rank."""
        self.order = Order()
        """What every node is to do now."""
        try:
            # A port of its own beside torchrun's, which exists only while a training runs.
            super().__init__(("", 0), _PeerConnection)
        except OSError as error:
            raise JobError(f"node 0 can't listen for the other nodes: {error}") from error
        port, host = self.socket.getsockname()[1], socket.gethostname()
        self.address = CoordinatorAddress(address=topology.master, port=port, token=secrets.token_hex(16), host=host)
        threading.Thread(target=self.serve_forever, args=(POLL_SECONDS,), daemon=True).start()

    def close(self, code: int, message: str) -> None:
        """Tell the other nodes how the command ended, and end."""
        self.order = Order(end=(code, message))
        deadline = time.monotonic() + END_SECONDS
        while not all(peer.lost for peer in self.peers.values()) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        self.shutdown()
        self.server_close()

    def missing(self) -> list[int]:
        """Return the ranks that are not connected."""
        ranks = range(1, self.topology.count)
        return [rank for rank in ranks if rank not in self.peers or self.peers[rank].lost]

    def admit(self, hello: NodeHello) -> PeerNode:
        """Return a new peer. Raises `UsageError` or `RunLockedError` where it is refused."""
        if hello.nodes != self.topology.count:
            raise UsageError(f"NNODES is {hello.nodes} here and {self.topology.count} on node 0 ({self.address.host})")
        other = self.peers.get(hello.rank)
        if other is not None and not other.lost:
            raise RunLockedError(f"process {other.hello.pid} on {other.hello.host} is node {hello.rank} already")
        self.peers[hello.rank] = peer = PeerNode(hello)
        return peer


class _PeerConnection(socketserver.StreamRequestHandler):
    server: Coordinator

    def handle(self) -> None:
        self.request.settimeout(self.server.silence)
        # Not one of our nodes, or one that went at once.
        with suppress(OSError, ValueError):
            hello = NodeHello.model_validate_json(self._receive())
            if not hmac.compare_digest(hello.token, self.server.address.token):
                return
            try:
                peer = self.server.admit(hello)
            except WebGymError as error:
                self._send(Order(error=type(error).__name__, message=str(error)))
            else:
                self._follow(peer)

    def _follow(self, peer: PeerNode) -> None:
        try:
            while True:
                self._send(self.server.order)
                peer.status = NodeStatus.model_validate_json(self._receive())
                peer.seen = time.monotonic()
        except TimeoutError:
            peer.lost = f"it is not heard from for {self.server.silence:g} s (train.node_timeout)"
        except OSError:
            peer.lost = "its process has ended"

    def _receive(self) -> bytes:
        if line := self.rfile.readline(LINE_LIMIT):
            return line
        raise ConnectionResetError

    def _send(self, message: Record) -> None:
        self.wfile.write(message.model_dump_json().encode() + b"\n")


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
    token = _COORDINATOR.set(coordinator)
    code, message = 1, "it failed"
    try:
        run.nodes.mkdir(parents=True, exist_ok=True)
        write_json(coordinator_file(run), coordinator.address.model_dump(mode="json"))
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
