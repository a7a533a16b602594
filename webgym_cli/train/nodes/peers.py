"""The other nodes of a training as node 0 sees them: starts their trainers, and finds the node that failed first."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, WebGymError
from webgym_cli.jobs.process import KILL_MARGIN
from webgym_cli.jobs.ray_cluster import ActorLostError
from webgym_cli.records.events import EventSink
from webgym_cli.store.run import RunDir
from webgym_cli.train.nodes.topology import NodeTopology, free_port
from webgym_cli.train.nodes.trainer_node import NodeLaunch, NodeStatus
from webgym_cli.train.training_plan import TrainPlan

POLL_SECONDS = 0.2
# Deadline of a call that starts a trainer: files may be laid out first. A dead node is noticed at once.
START_SECONDS = 600.0
# Time for the node that failed first to report: torchrun ends its workers before it exits itself.
SETTLE_SECONDS = 10.0


class PeerConnection(Protocol):
    """Calls methods of a node's `TrainerNode`."""

    @property
    def name(self) -> str:
        """The node in messages."""
        ...

    async def call(self, method: str, *arguments: object, seconds: float) -> object:
        """Call a method. Raises `ActorLostError` when the node is lost, and what the method raises."""
        ...


@dataclass(slots=True)
class Peer:
    """A node that takes part in the training."""

    rank: int
    connection: PeerConnection
    status: NodeStatus = NodeStatus()  # noqa: RUF009 - frozen
    lost: str = ""
    """Why it counts as lost."""


@dataclass(frozen=True, slots=True, order=True)
class PeerFault:
    """What is wrong with a peer."""

    weight: int
    """2: the node is lost; 1: its trainer failed; 0: its trainer only noticed that another one was gone."""
    rank: int
    text: str


class Peers:
    """No other nodes: the base of those below, and the case of one node."""

    async def start(self) -> dict[str, str]:
        """Start the trainers of all nodes; return the variables of node 0's own. Raises `JobError` with the name."""
        return {}

    async def stop(self) -> None:
        """End the trainers of all nodes. Safe to repeat."""

    def trouble(self) -> JobError | None:
        """Return why the training can't go on, where another node is the reason."""
        return None

    async def blame(self, own: JobError, *, secondary: bool) -> JobError:
        """Return the first cause after node 0's trainer failed; `secondary`: its error reports a lost connection."""
        return own

    async def finish(self) -> None:
        """Wait until the trainers of all nodes have ended. Raises `JobError` where one failed."""


class ConnectedPeers(Peers):
    """The other nodes of a training, however they are connected."""

    again: ClassVar[str]
    """What to type when a node failed, with `{run}`."""

    def __init__(
        self, plan: TrainPlan, run: RunDir, settings: Settings, topology: NodeTopology, logs: Path, sink: EventSink
    ) -> None:
        self.plan, self.run, self.settings, self.topology = plan, run, settings, topology
        self.hint = self.again.format(run=run.root)
        self.timeout = settings.train.node_timeout
        self.peers: list[Peer] = []
        self._logs = logs
        self._sink = sink
        self._polls: list[asyncio.Task[None]] = []

    async def connect(self) -> tuple[list[Peer], str]:
        """Return the peers and the address of node 0 for them."""
        raise NotImplementedError

    async def prepare(self, peer: Peer) -> None:
        """Give a peer what it lacks before its trainer starts."""

    async def collect(self, peer: Peer) -> None:
        """Fetch the files that a peer's status names."""

    async def start(self) -> dict[str, str]:
        """Connect, start the trainers and poll them from then on."""
        self.peers, address = await self.connect()
        launch = self._launch(address)
        await asyncio.gather(*(self._start(peer, launch) for peer in self.peers))
        self._polls = [asyncio.create_task(self._poll(peer)) for peer in self.peers]
        self.say(f"node 0 trains with {', '.join(peer.connection.name for peer in self.peers)}")
        return launch.rendezvous(0)

    async def stop(self) -> None:
        """End the polling and the trainers."""
        polls, self._polls = self._polls, []
        for poll in polls:
            poll.cancel()
        await asyncio.gather(*(self._stop(peer) for peer in self.peers))

    def trouble(self) -> JobError | None:
        """Return the gravest fault of a peer."""
        worst = self._worst()
        return self._error(worst) if worst else None

    async def blame(self, own: JobError, *, secondary: bool) -> JobError:
        """Ask every peer once more, so that a dead one is not taken for well, and return the first cause."""
        await asyncio.gather(*(self._refresh(peer) for peer in self.peers))
        deadline = time.monotonic() + min(SETTLE_SECONDS, self.timeout)
        while secondary and not ((worst := self._worst()) and worst.weight) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
        worst = self._worst()
        # Our own error stands unless a peer is lost, or failed by itself while ours only reports a lost connection.
        return self._error(worst) if worst and worst.weight > (0 if secondary else 1) else own

    async def finish(self) -> None:
        """Wait until the trainers of all peers have ended and their files are here."""
        while not all(peer.status.code == 0 for peer in self.peers):
            if trouble := self.trouble():
                raise trouble
            await asyncio.sleep(POLL_SECONDS)
        # Once more: the last checkpoint was written after the last poll.
        try:
            for peer in self.peers:
                await self._update(peer)
        except (ActorLostError, OSError) as error:
            raise JobError(f"{peer.connection.name} was lost with its last files: {error}", hint=self.hint) from error

    def say(self, message: str) -> None:
        """Show a message about the nodes."""
        self._sink({"event": "node", "rank": 0, "message": message})

    def _launch(self, address: str) -> NodeLaunch:
        plan = self.plan
        return NodeLaunch(
            folder=str(plan.folder),
            algorithm=plan.algorithm,
            launch_file=plan.launch_file,
            env=plan.env,
            processes=plan.training.world_size // self.topology.count,
            nodes=self.topology.count,
            address=address,
            # A new port for each training: the last one may still be in TIME_WAIT.
            port=self.topology.port or free_port(),
            logs=str(self._logs),
        )

    async def _start(self, peer: Peer, launch: NodeLaunch) -> None:
        try:
            await self.prepare(peer)
            await peer.connection.call("start", launch.model_dump_json(), seconds=START_SECONDS)
        except (ActorLostError, JobError) as error:
            raise JobError(f"{peer.connection.name} did not begin: {error}", hint=self.hint) from error
        except WebGymError as error:
            raise type(error)(f"{peer.connection.name}: {error}", hint=error.hint) from error

    async def _poll(self, peer: Peer) -> None:
        while not peer.lost and peer.status.code is None:
            await self._refresh(peer)
            await asyncio.sleep(POLL_SECONDS)

    async def _refresh(self, peer: Peer) -> None:
        try:
            await self._update(peer)
        except (ActorLostError, WebGymError, OSError) as error:
            peer.lost = peer.lost or str(error)

    async def _update(self, peer: Peer) -> None:
        answer = await peer.connection.call("status", seconds=self.timeout)
        peer.status = NodeStatus.model_validate_json(str(answer))
        await self.collect(peer)

    async def _stop(self, peer: Peer) -> None:
        seconds = self.settings.train.stop_grace + KILL_MARGIN
        if not peer.lost:
            try:
                await peer.connection.call("stop", seconds=seconds)
            except (ActorLostError, WebGymError) as error:  # a lost node's guard ends its trainer
                peer.lost = str(error)

    def _worst(self) -> PeerFault | None:
        return max((fault for peer in self.peers if (fault := _fault(peer))), default=None)

    def _error(self, fault: PeerFault) -> JobError:
        name = next(peer.connection.name for peer in self.peers if peer.rank == fault.rank)
        return JobError(f"{name}{fault.text}", hint=self.hint)


def _fault(peer: Peer) -> PeerFault | None:
    if peer.status.code:
        return PeerFault(0 if peer.status.secondary else 1, peer.rank, f": {peer.status.message}")
    return PeerFault(2, peer.rank, f" left the training: {peer.lost}") if peer.lost else None
