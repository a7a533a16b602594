"""The other nodes of a training as node 0 sees them: starts their trainers, and finds the node that failed first."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from webgym_cli import errors
from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, WebGymError
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.store.run import RunDir
from webgym_cli.train.nodes.coordinator import Coordinator, PeerNode, current_coordinator
from webgym_cli.train.nodes.messages import POLL_SECONDS, NodeLaunch, NodeStatus, Order
from webgym_cli.train.nodes.ray_nodes import place_nodes
from webgym_cli.train.nodes.topology import free_port
from webgym_cli.train.training_plan import TrainPlan

# Time for the node that failed first to report: torchrun ends its workers before it exits itself.
SETTLE_SECONDS = 10.0


@dataclass(slots=True)
class Peers:
    """The other nodes of a training; none for a training on one node. Use `open_peers`."""

    coordinator: Coordinator | None
    plan: TrainPlan
    hint: str
    """What to type when a node failed."""
    logs: Path
    sink: EventSink
    _noticed: float = math.inf
    """When a node first only noticed a lost connection, by the monotonic clock."""

    async def start(self) -> dict[str, str]:
        """Start the trainers of all nodes; return the variables of node 0's own. Raises `JobError` with the name."""
        if self.coordinator is None:
            return {}
        coordinator, topology = self.coordinator, self.coordinator.topology
        if not await _wait_until(lambda: not coordinator.missing(), coordinator.silence):
            rank = coordinator.missing()[0]
            late = coordinator.peers.get(rank)
            why = late.lost if late else f"it is not heard from for {coordinator.silence:g} s (train.node_timeout)"
            raise JobError(
                f"{late.name if late else f'node {rank}'} has not joined the training: {why}", hint=self.hint
            )
        launch = NodeLaunch(
            folder=str(self.plan.folder),
            algorithm=self.plan.algorithm,
            launch_file=self.plan.launch_file,
            env=self.plan.env,
            processes=self.plan.training.world_size // topology.count,
            nodes=topology.count,
            address=topology.master,
            # A new port for each training: the last one may still be in TIME_WAIT.
            port=topology.port or free_port(),
            logs=str(self.logs),
        )
        coordinator.order = Order(launch=launch)
        names = ", ".join(peer.name for peer in self._peers)
        self.sink(make_event("node", rank=0, message=f"node 0 trains with {names}"))
        return launch.rendezvous(0)

    async def stop(self) -> None:
        """End the trainers of all nodes. Safe to repeat."""
        if self.coordinator is not None:
            self.coordinator.order = Order()
            await self._await_statuses(lambda peer: peer.status == NodeStatus())

    def trouble(self) -> WebGymError | None:
        """Return why the training can't go on, where another node is the reason."""
        if self._worst == 0:
            # The trainer that failed first may be node 0's, and take a moment to end.
            self._noticed = min(self._noticed, time.monotonic())
        if self._worst < 0 or (self._worst == 0 and time.monotonic() - self._noticed < SETTLE_SECONDS):
            return None
        peer = max(self._peers, key=_severity)
        if peer.status.error:
            kind = getattr(errors, peer.status.error)
            return cast(WebGymError, kind(f"{peer.name}: {peer.status.message}", hint=peer.status.hint or self.hint))
        return JobError(f"{peer.name} left the training: {peer.lost}", hint=self.hint)

    async def blame(self, own: JobError, *, secondary: bool) -> WebGymError:
        """Return the first cause after node 0's trainer failed; `secondary`: its error reports a lost connection."""
        await self._await_statuses(lambda peer: True)  # a dead node must not be taken for well
        least = 1 if secondary else 2
        if secondary and self.coordinator is not None:
            await _wait_until(lambda: self._worst >= least, min(SETTLE_SECONDS, self.coordinator.silence))
        # Our own error stands unless a peer is lost, or failed by itself while ours only reports a lost connection.
        return (self.trouble() or own) if self._worst >= least else own

    async def finish(self) -> None:
        """Wait until the trainers of all nodes have ended. Raises `WebGymError` where one failed."""
        while not all(peer.status.done for peer in self._peers):
            if trouble := self.trouble():
                raise trouble
            await asyncio.sleep(POLL_SECONDS)

    @property
    def _peers(self) -> list[PeerNode]:
        return [peer for _, peer in sorted(self.coordinator.peers.items())] if self.coordinator else []

    @property
    def _worst(self) -> int:
        return max(map(_severity, self._peers), default=-1)

    async def _await_statuses(self, reached: Callable[[PeerNode], bool]) -> None:
        """Wait until every node has sent a status that fits, or is lost. Silent ones are after a while."""
        since = time.monotonic()
        while not all(peer.lost or (peer.seen > since and reached(peer)) for peer in self._peers):  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)


def _severity(peer: PeerNode) -> int:
    """Return 2 for a lost node, 1 for a failed trainer, 0 for one that only noticed a lost node, -1 for none."""
    if peer.status.error:
        return 0 if peer.status.secondary else 1
    return 2 if peer.lost and not peer.status.done else -1


async def _wait_until(reached: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not (result := reached()) and time.monotonic() < deadline:  # noqa: ASYNC110 - set by another thread
        await asyncio.sleep(POLL_SECONDS)
    return result


@asynccontextmanager
async def open_peers(
    plan: TrainPlan, run: RunDir, settings: Settings, logs: Path, sink: EventSink
) -> AsyncIterator[Peers]:
    """Yield the other nodes of a training. At the end their trainers have ended."""
    opened: AbstractAsyncContextManager[Coordinator | None] = nullcontext()
    where = ""
    if plan.place is not None and plan.place.by_ray:
        opened = place_nodes(plan, run, settings)
    elif plan.place is not None:
        opened, where = nullcontext(current_coordinator()), ", on every node"
    async with opened as coordinator:
        hint = f"webgym resume {run.root}{where}: the training goes on from its last checkpoint"
        peers = Peers(coordinator, plan, hint, logs, sink)
        try:
            yield peers
        finally:
            # Nodes that keep waiting for this one would block their GPUs until the timeout.
            await peers.stop()
