"""Nodes that each run the same command on a shared run folder (`NNODES`, `NODE_RANK`): node 0's side.

While its command runs, node 0 listens on a TCP port that it writes to `nodes/coordinator.json`. The other nodes connect
to it and keep the connection open: its end is how a killed process is noticed, a request without an answer a hung one.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ClassVar

from webgym_cli import errors
from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, Terminated, WebGymError
from webgym_cli.jobs.ray_cluster import ActorLostError
from webgym_cli.store.run import RunDir
from webgym_cli.train.nodes.peers import POLL_SECONDS, ConnectedPeers, Peer
from webgym_cli.train.nodes.topology import NodeTopology, from_env
from webgym_cli.util.files import write_json

# Bytes of the longest message.
LINE_LIMIT = 2**24


def coordinator_file(run: RunDir) -> Path:
    """Return the file that holds node 0's address; it is removed when node 0's command ends."""
    return run.nodes / "coordinator.json"


class SocketConnection:
    """Node 0's connection to another node: one request at a time, each a line of JSON."""

    def __init__(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.name = name
        self.lost = ""
        """Why the node is lost."""
        self.holder = ""
        """Process and host, for messages."""
        self._reader, self._writer = reader, writer
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()

    async def call(self, method: str, *arguments: object, seconds: float) -> object:
        """Call a method of the node from another event loop."""
        request = asyncio.run_coroutine_threadsafe(self.request(method, *arguments, seconds=seconds), self._loop)
        # A caller that is cancelled must not cut a request in two: the next answer would be taken for its own.
        answer: dict[str, Any] = await asyncio.shield(asyncio.wrap_future(request))
        if "error" in answer:
            known = getattr(errors, answer["error"], WebGymError)
            raise known(answer["message"], hint=answer["hint"])
        return answer.get("result")

    async def request(self, method: str, *arguments: object, seconds: float) -> dict[str, Any]:
        """Send a request and return the answer. Raises `ActorLostError`."""
        async with self._turn:
            if self.lost:
                raise ActorLostError(self.lost)
            try:
                async with asyncio.timeout(seconds):
                    self._writer.write(json.dumps({"method": method, "arguments": arguments}).encode() + b"\n")
                    await self._writer.drain()
                    line = await self._reader.readline()
            except TimeoutError:
                self.lost, line = f"it is not heard from for {seconds:g} s (train.node_timeout)", b""
            except ConnectionError:  # reset: its process ended with a request unread
                line = b""
            except OSError as error:
                self.lost, line = f"its connection is lost: {error}", b""
            if not line:
                self.lost = self.lost or "its process has ended"
                self._writer.close()
                raise ActorLostError(self.lost)
            answer: dict[str, Any] = json.loads(line)
            return answer

    async def end(self, code: int, message: str) -> None:
        """Tell the node that the command has ended; no answer comes."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                self._writer.write(json.dumps({"method": "end", "arguments": [code, message]}).encode() + b"\n")
                await self._writer.drain()
        self._writer.close()


class Coordinator(threading.Thread):
    """Node 0's listener. A thread of its own: long work in the foreground must not look like a dead node."""

    def __init__(self, run: RunDir, topology: NodeTopology, timeout: float, command: str) -> None:
        super().__init__(name="coordinator", daemon=True)
        self.connections: dict[int, SocketConnection] = {}
        """By rank."""
        self._run, self._topology, self._timeout = run, topology, timeout
        self._command = command
        # Who can read the run's folder may join; who only reaches the port may not.
        self._token = secrets.token_hex(16)
        self._ready = threading.Event()
        self._pings: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._result: dict[str, Any] = {"code": 1, "message": "it failed"}

    def open(self) -> None:
        """Listen. Raises `StoreError` where the run's folder can't be written, `JobError` without a port."""
        self.start()
        self._ready.wait()
        if self._failure is not None:
            if isinstance(self._failure, WebGymError):
                raise self._failure
            raise JobError(f"node 0 can't listen for the other nodes: {self._failure}") from self._failure

    def close(self, code: int, message: str) -> None:
        """Tell the other nodes how the command ended, and end."""
        self._result = {"code": code, "message": message}
        self._loop.call_soon_threadsafe(self._closing.set)
        self.join()
        coordinator_file(self._run).unlink(missing_ok=True)

    def run(self) -> None:
        """Serve until `close`."""
        try:
            asyncio.run(self._serve())
        except (OSError, WebGymError) as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        # A port of its own beside torchrun's, which exists only while a training runs.
        server = await asyncio.start_server(self._accept, None, 0, limit=LINE_LIMIT, family=socket.AF_INET)
        facts = {
            "address": self._topology.master,
            "port": server.sockets[0].getsockname()[1],
            "token": self._token,
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }
        self._run.nodes.mkdir(parents=True, exist_ok=True)
        write_json(coordinator_file(self._run), facts)
        self._ready.set()
        async with server:
            await self._closing.wait()
            for connection in self.connections.values():
                await connection.end(self._result["code"], self._result["message"])

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, KeyError, TypeError):  # not one of our nodes
            async with asyncio.timeout(self._timeout):
                hello = json.loads(await reader.readline())
            if not hmac.compare_digest(str(hello["token"]), self._token):
                writer.close()
                return
            refusal = self._refusal(hello)
            writer.write(json.dumps(refusal or {"command": self._command}).encode() + b"\n")
            await writer.drain()
            if refusal:
                writer.close()
                return
            name = f"node {hello['rank']} ({hello['host']})"
            connection = SocketConnection(name, reader, writer)
            connection.holder = f"process {hello['pid']} on {hello['host']}"
            self.connections[int(hello["rank"])] = connection
            # Not awaited here: asyncio's streams report a handler that is cancelled at the end as an error.
            self._pings.add(asyncio.create_task(self._ping(connection)))

    def _refusal(self, hello: dict[str, Any]) -> dict[str, str]:
        if hello["nodes"] != self._topology.count:
            where = f"{self._topology.count} on node 0 ({socket.gethostname()})"
            return {"error": "UsageError", "message": f"NNODES is {hello['nodes']} here and {where}"}
        other = self.connections.get(hello["rank"])
        if other is not None and not other.lost:
            return {"error": "RunLockedError", "message": f"{other.holder} is node {hello['rank']} already"}
        return {}

    async def _ping(self, connection: SocketConnection) -> None:
        with suppress(ActorLostError):
            while not self._closing.is_set():
                await connection.request("ping", seconds=self._timeout)
                await asyncio.sleep(min(2.0, self._timeout / 10))


# That of the command which runs.
_COORDINATOR: ContextVar[Coordinator | None] = ContextVar("coordinator", default=None)


@contextmanager
def coordinate(
    run: RunDir, settings: Settings, command: str, environ: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Let the other nodes join this command while the block runs; nothing where it runs on one node."""
    topology = from_env(os.environ if environ is None else environ)
    if topology is None:
        yield
        return
    coordinator = Coordinator(run, topology, settings.train.node_timeout, command)
    coordinator.open()
    token = _COORDINATOR.set(coordinator)
    code, message = 1, "it failed"
    try:
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


class SharedPeers(ConnectedPeers):
    """Nodes that run the same command and have connected to node 0's coordinator."""

    again: ClassVar[str] = "webgym resume {run}, on every node: the training goes on from its last checkpoint"

    async def connect(self) -> tuple[list[Peer], str]:
        """Wait until every node is connected."""
        coordinator = _COORDINATOR.get()
        if coordinator is None:
            raise JobError("a training over several nodes outside of `coordinate`")
        self.say(f"node 0 waits for {self.topology.count - 1} more")
        deadline, ranks = time.monotonic() + self.timeout, range(1, self.topology.count)
        while missing := [rank for rank in ranks if not _is_connected(coordinator, rank)]:
            if time.monotonic() > deadline:
                known = coordinator.connections.get(missing[0])
                name = known.name if known else f"node {missing[0]}"
                why = known.lost if known else f"it is not heard from for {self.timeout:g} s (train.node_timeout)"
                raise JobError(f"{name} has not joined the training: {why}", hint=self.hint)
            await asyncio.sleep(POLL_SECONDS)
        return [Peer(rank, coordinator.connections[rank]) for rank in ranks], self.topology.master


def _is_connected(coordinator: Coordinator, rank: int) -> bool:
    return rank in coordinator.connections and not coordinator.connections[rank].lost
