"""The other nodes of a training, placed by Ray: one actor a node, while node 0 is this machine.

A node that does not see the run's folder is sent what it needs, and what its trainer leaves beside the checkpoints (its
share of the optimizer's states) is fetched as soon as it is written: a checkpoint in the run is whole again.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import webgym_cli
from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, UsageError, VenvError
from webgym_cli.jobs.process import KILL_MARGIN
from webgym_cli.jobs.ray_cluster import ActorLostError, Node, RayCluster, open_cluster
from webgym_cli.records.events import EventSink
from webgym_cli.store.run import RunDir
from webgym_cli.train.nodes.coordinator import LedCrew
from webgym_cli.train.nodes.ray_worker import Arrival, Made, Posting, Report, TrainNode
from webgym_cli.train.nodes.status_files import Launch, NodeWord
from webgym_cli.train.nodes.topology import Place
from webgym_cli.train.nodes.transfer import Cargo, Parcel, cargo_of, read_piece
from webgym_cli.train.registry import find_backend
from webgym_cli.train.training_plan import TrainPlan
from webgym_cli.util.files import write_atomic

BEGIN_SECONDS = 600.0
"""Deadline of each step of the beginning: Ray starts a process, files are laid out. A dead node is told at once."""
ASK_SECONDS = 1.0
"""Between two questions to a node."""


class RayEar:
    """What is heard of one node by asking it."""

    def __init__(self) -> None:
        self.changes = 0
        self._since = time.monotonic()
        self._last: NodeWord | None = None

    def hear(self) -> NodeWord | None:
        """Return what it said last."""
        return self._last

    def take(self, word: NodeWord | None = None) -> None:
        """Take its word, or only a sign of life."""
        self._last = word or self._last
        self._since = time.monotonic()
        self.changes += 1

    @property
    def silent(self) -> float:
        """Seconds since the last sign of life."""
        return time.monotonic() - self._since


@dataclass(slots=True)
class Member:
    """A node as node 0 knows it."""

    rank: int
    node: Node
    handle: Any
    ear: RayEar = field(default_factory=RayEar)
    apart: bool = False
    """Whether it does not see the run's folder."""

    @property
    def name(self) -> str:
        """How people are told of it."""
        return f"node {self.rank} ({self.node.name}, {self.node.address})"


class RayCrew(LedCrew):
    """The nodes that Ray placed."""

    again: ClassVar[str] = "webgym resume {run}: the training goes on from its last checkpoint"

    def __init__(
        self, plan: TrainPlan, run: RunDir, settings: Settings, place: Place, logs: Path, sink: EventSink
    ) -> None:
        super().__init__(plan, run, settings, place, logs, sink)
        self._open = AsyncExitStack()
        self._members: list[Member] = []
        self._talks: list[asyncio.Task[None]] = []

    async def gather(self) -> dict[str, str]:
        """Place an actor on every node, send what they need, and start their trainers."""
        self._cluster = cluster = await self._open.enter_async_context(open_cluster(self._settings.rollout))
        launch = self._launch("", self._place.address or cluster.here)
        self._members = self._hire(cluster, launch)
        self.ears = {member.rank: member.ear for member in self._members}
        await asyncio.gather(*(self._begin(member, launch) for member in self._members))
        self._say(f"node 0 trains with {', '.join(member.name for member in self._members)}")
        return launch.rendezvous(0)

    async def finish(self) -> None:
        """Wait until the other nodes have done their parts and gave back what they made."""
        await super().finish()
        await self._silence()
        for member in self._members:
            try:
                report = Report.model_validate_json(await self._ask(member, "report"))
                await self._collect(member, report.made)
            except ActorLostError as error:
                raise JobError(f"{member.name} was lost with its last files: {error}", hint=self.hint) from error

    async def dismiss(self) -> None:
        """Stop the trainers of all nodes and end their actors."""
        await self._silence()
        members, self._members = self._members, []
        await asyncio.gather(*(self._send_home(member) for member in members))
        await self._open.aclose()

    def name(self, rank: int) -> str:
        """How people are told of a node."""
        return self._members[rank - 1].name if self._members else f"node {rank}"

    def _hire(self, cluster: RayCluster, launch: Launch) -> list[Member]:
        """Return an actor on each of as many nodes as are wanted beside this one."""
        gpus = float(launch.processes) if self._plan.device == "cuda" else 0.0
        found = [node for node in cluster.nodes(0.0, gpus) if node.id != cluster.here_id]
        wanted = self._place.count - 1
        if len(found) < wanted:
            raise UsageError(
                f"train.nodes is {self._place.count}, but the Ray cluster has {len(found)} nodes beside this one"
                + (f" with {gpus:g} GPUs" if gpus else ""),
                hint="ray status; start Ray on the missing nodes, or set train.nodes",
            )
        return [
            Member(rank, node, cluster.create_actor(TrainNode, node, cpus=0.0, gpus=gpus))
            for rank, node in enumerate(found[:wanted], 1)
        ]

    async def _begin(self, member: Member, launch: Launch) -> None:
        """Have a node start its trainer. Raises `JobError` that names it."""
        try:
            arrival = await self._arrive(member)
            member.apart = not arrival.sees
            if member.apart and find_backend(self._plan.algorithm).needs_run_folder:
                raise UsageError(
                    f"{member.name} does not see {self._run.root}, where train.algorithm={self._plan.algorithm} works",
                    hint="mount the run at the same path on every node, or set train.nodes=1",
                )
            cargo = await self._send(member) if member.apart else None
            await self._ask(
                member,
                "begin",
                launch.model_dump_json(),
                cargo.model_dump_json() if cargo else "",
                seconds=BEGIN_SECONDS,
            )
            self._talks.append(asyncio.create_task(self._talk(member)))
        except ActorLostError as error:
            raise JobError(f"{member.name} did not begin: {error}", hint=self.hint) from error

    async def _arrive(self, member: Member) -> Arrival:
        marker = self._run.nodes / f"marker-{uuid4().hex}"
        apart = self._settings.train.node_storage == "separate"
        if not apart:
            write_atomic(marker, "")
        posting = Posting(
            rank=member.rank, root=str(self._run.root), marker="" if apart else str(marker), settings=self._settings
        )
        try:
            arrival = Arrival.model_validate_json(
                await self._ask(member, "arrive", posting.model_dump_json(), seconds=BEGIN_SECONDS)
            )
        finally:
            marker.unlink(missing_ok=True)
        if arrival.fault:
            raise VenvError(f"{member.name}: {arrival.fault}", hint="webgym setup --role train, on that node")
        if arrival.version != webgym_cli.__version__:
            raise UsageError(
                f"{member.name} has webgym {arrival.version}, here it is {webgym_cli.__version__}",
                hint="install the same version on every node",
            )
        return arrival

    async def _send(self, member: Member) -> Cargo:
        """Send a node what it lacks, piece by piece."""
        cargo = await asyncio.to_thread(cargo_of, self._plan)
        answer = await self._ask(member, "missing", cargo.model_dump_json(), seconds=BEGIN_SECONDS)
        parcels = [Parcel.model_validate_json(text) for text in answer]
        amount = sum(parcel.size for parcel in parcels)
        self._say(
            f"{member.name} does not see {self._run.root}: it is sent {len(parcels)} files, {amount / 1e6:.1f} of "
            f"{cargo.size / 1e6:.1f} MB; the rest it has"
        )
        for parcel in parcels:
            offset = 0
            while offset == 0 or offset < parcel.size:
                piece = await asyncio.to_thread(read_piece, Path(parcel.path), offset)
                await self._ask(member, "put", parcel.model_dump_json(), offset, piece)
                offset += max(1, len(piece))
        return cargo

    async def _talk(self, member: Member) -> None:
        """Ask a node how it goes until it is lost."""
        try:
            while True:
                report = Report.model_validate_json(await self._ask(member, "report"))
                member.ear.take(report.word)
                await self._collect(member, report.made)
                await asyncio.sleep(ASK_SECONDS)
        except (ActorLostError, OSError) as error:
            last = member.ear.hear() or NodeWord(
                command="", host=member.node.name, pid=0, rank=member.rank, training=self.training
            )
            member.ear.take(last.model_copy(update={"gone": str(error)}))

    async def _collect(self, member: Member, made: tuple[Made, ...]) -> None:
        """Fetch what a node's trainer left beside a checkpoint that is still kept here."""
        for file in made:
            target = self._plan.folder / file.path
            checkpoint = self._plan.folder / Path(file.path).parts[0]
            if not checkpoint.is_dir() or (target.is_file() and target.stat().st_size == file.size):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            unfinished = target.with_name(f".{target.name}.part")
            with unfinished.open("wb") as writer:
                while writer.tell() < file.size:
                    piece = await self._ask(member, "get", file.path, writer.tell())
                    if not piece:
                        raise OSError(f"{file.path} is gone there")
                    writer.write(piece)
                    member.ear.take()
            unfinished.replace(target)

    async def _ask(self, member: Member, method: str, *arguments: object, seconds: float = 0.0) -> Any:
        """Call a node's method, with `train.node_timeout` as the deadline unless another is given."""
        return await self._cluster.call(getattr(member.handle, method), *arguments, seconds=seconds or self.timeout)

    async def _silence(self) -> None:
        """End the talks."""
        talks, self._talks = self._talks, []
        for talk in talks:
            talk.cancel()
        if talks:
            await asyncio.wait(talks)

    async def _send_home(self, member: Member) -> None:
        word = member.ear.hear()
        if word is None or not word.gone:
            with suppress(ActorLostError):  # its process is gone, and its trainer with it
                await self._ask(member, "end", seconds=self._settings.train.stop_grace + KILL_MARGIN)
        await self._cluster.kill(member.handle)
