"""The other nodes of a training as Ray actors, one per node. A node without the run's folder is sent what it needs."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import webgym_cli
from webgym_cli.errors import UsageError, VenvError
from webgym_cli.jobs.ray_cluster import Node, RayCluster, open_cluster
from webgym_cli.train.nodes.peers import START_SECONDS, ConnectedPeers, Peer
from webgym_cli.train.nodes.ray_worker import RayTrainerNode
from webgym_cli.train.nodes.transfer import FileEntry, build_manifest, read_piece
from webgym_cli.train.registry import find_backend
from webgym_cli.util.files import write_atomic


@dataclass(slots=True)
class ActorConnection:
    """Calls the methods of an actor."""

    rank: int
    node: Node
    handle: Any
    cluster: RayCluster

    @property
    def name(self) -> str:
        """The node in messages."""
        return f"node {self.rank} ({self.node.name}, {self.node.address})"

    async def call(self, method: str, *arguments: object, seconds: float) -> object:
        """Call a method. Raises `ActorLostError`."""
        return await self.cluster.call(getattr(self.handle, method), *arguments, seconds=seconds)


class RayPeers(ConnectedPeers):
    """Nodes that Ray placed."""

    again: ClassVar[str] = "webgym resume {run}: the training goes on from its last checkpoint"
    _cluster: RayCluster
    _connections: tuple[ActorConnection, ...] = ()

    async def connect(self) -> tuple[list[Peer], str]:
        """Create an actor on as many nodes as are wanted beside this one."""
        self._open = AsyncExitStack()
        cluster = await self._open.enter_async_context(open_cluster(self.settings.rollout))
        wanted = self.topology.count - 1
        gpus = float(self.plan.training.world_size // self.topology.count) if self.plan.device == "cuda" else 0.0
        offered = [node for node in cluster.nodes(0.0, gpus) if node.id != cluster.here_id]
        if len(offered) < wanted:
            raise UsageError(
                f"train.nodes is {self.topology.count}, but the Ray cluster has {len(offered)} nodes beside this one"
                + (f" with {gpus:g} GPUs" if gpus else ""),
                hint="ray status; start Ray on the missing nodes, or set train.nodes",
            )
        self._connections = tuple(
            # No CPUs: a node that rolls out offers none. The GPUs are reserved, so that Ray gives them to no one else.
            ActorConnection(rank, node, cluster.create_actor(RayTrainerNode, node, cpus=0.0, gpus=gpus), cluster)
            for rank, node in enumerate(offered[:wanted], 1)
        )
        self._cluster = cluster
        peers = [Peer(connection.rank, connection) for connection in self._connections]
        return peers, self.topology.address or cluster.here

    async def stop(self) -> None:
        """End the trainers and the actors."""
        await super().stop()
        connections, self._connections = self._connections, ()
        for connection in connections:
            await self._cluster.kill(connection.handle)
        if hasattr(self, "_open"):
            await self._open.aclose()

    async def prepare(self, peer: Peer) -> None:
        """Check a node, and send it what it lacks. Raises `UsageError`, `VenvError`."""
        name, seen = peer.connection.name, await self._inspect(peer)
        if seen["fault"]:
            raise VenvError(str(seen["fault"]), hint="webgym setup --role train, on that node")
        if seen["version"] != webgym_cli.__version__:
            raise UsageError(
                f"it has webgym {seen['version']}, here it is {webgym_cli.__version__}",
                hint="install the same version on every node",
            )
        if seen["visible"]:
            return
        if find_backend(self.plan.algorithm).needs_run_folder:
            raise UsageError(
                f"it does not see {self.run.root}, where train.algorithm={self.plan.algorithm} works",
                hint="mount the run at the same path on every node, or set train.nodes=1",
            )
        manifest = await asyncio.to_thread(build_manifest, self.plan)
        text = manifest.model_dump_json()
        missing: Any = await peer.connection.call("missing", text, seconds=START_SECONDS)
        entries = [FileEntry.model_validate_json(entry) for entry in missing]
        amount = sum(entry.size for entry in entries)
        self.say(
            f"{name} does not see {self.run.root}: it is sent {len(entries)} files, {amount / 1e6:.1f} of "
            f"{manifest.size / 1e6:.1f} MB; the rest it has"
        )
        for entry in entries:
            await self._send(peer, entry)
        await peer.connection.call("lay_out", text, seconds=START_SECONDS)

    async def collect(self, peer: Peer) -> None:
        """Fetch what a node's trainer left beside a checkpoint that is kept here."""
        for name, size in peer.status.files.items():
            target = self.plan.folder / name
            checkpoint = self.plan.folder / Path(name).parts[0]
            if not checkpoint.is_dir() or (target.is_file() and target.stat().st_size == size):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            unfinished = target.with_name(f".{target.name}.part")
            with unfinished.open("wb") as writer:
                while writer.tell() < size:
                    piece: Any = await peer.connection.call("get", name, writer.tell(), seconds=self.timeout)
                    if not piece:
                        raise OSError(f"{name} is gone there")
                    writer.write(piece)
            unfinished.replace(target)

    async def _inspect(self, peer: Peer) -> dict[str, Any]:
        marker = self.run.nodes / f"marker-{uuid4().hex}"
        apart = self.settings.train.node_storage == "separate"
        if not apart:
            write_atomic(marker, "")
        where = (peer.rank, self.settings, str(self.run.root), "" if apart else str(marker))
        try:
            seen: Any = await peer.connection.call("inspect", *where, seconds=START_SECONDS)
        finally:
            marker.unlink(missing_ok=True)
        return dict(seen)

    async def _send(self, peer: Peer, entry: FileEntry) -> None:
        offset = 0
        while offset == 0 or offset < entry.size:
            piece = await asyncio.to_thread(read_piece, Path(entry.path), offset)
            await peer.connection.call("put", entry.model_dump_json(), offset, piece, seconds=self.timeout)
            offset += max(1, len(piece))
