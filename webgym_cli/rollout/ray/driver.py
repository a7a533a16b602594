"""A rollout over the nodes of a Ray cluster: the driver's side.

Each node has one rank (`ray_rank`), a whole engine that writes part files of its own. The driver keeps the book of who
has which episode, hands them out one by one, and tells of everything as a rollout on one machine would. When a rank is
lost, what it had and what is not on disk goes to others. Nothing that is on disk is run again.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import webgym_cli
from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, StoreError, UsageError, VenvError, WebGymError
from webgym_cli.jobs.ray_cluster import ActorLostError, Node, RayCluster, wait_for_file
from webgym_cli.records.events import EventSink
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.engine import WATCH_GRACE, summarize
from webgym_cli.rollout.plan import RolloutPlan
from webgym_cli.rollout.ray.coordinator import Head
from webgym_cli.rollout.ray.messages import Arrival, Posting, Report, Ticket
from webgym_cli.rollout.ray.worker import LEASE, MARKER_SECONDS, RolloutRank
from webgym_cli.rollout.resources import POLICY_KEY, PolicyEndpoint, ResourceFactory
from webgym_cli.store.run import RunDir
from webgym_cli.util.files import write_atomic

SILENCE = LEASE + 30.0
"""Seconds without an answer after which a rank counts as lost. Its lease has ended by then: it runs nothing more."""
ARRIVAL = 120.0
"""Seconds in which a node must have begun a rank: Ray may have to start a process, or to wait for a free CPU."""
NEW_NODES = 10.0
_FAREWELL = 40.0
"""Seconds for a rank to store what runs as cancelled and to close its browsers."""
_AGAIN = "run the same command again: what is stored stays"


@dataclass(slots=True)
class Rank:
    """A rank as the driver knows it."""

    number: int
    node: Node
    handle: Any
    sent: int = 0
    heard: int = 0
    """How many of its items arrived."""
    wanting: int = 0
    """Episodes that it could begin now."""

    @property
    def name(self) -> str:
        """How people are told of it."""
        return f"rank {self.number} on {self.node.name} ({self.node.address})"


@dataclass(slots=True)
class ScaleOut:
    """One rollout over a cluster."""

    plan: RolloutPlan
    run: RunDir
    settings: Settings
    cluster: RayCluster
    opener: ResourceFactory
    """Opens an engine's parts; a function that each node can import."""
    acting: PolicyEndpoint
    environment: str
    sink: EventSink
    head: Head = field(init=False)
    _ranks: dict[int, Rank] = field(default_factory=dict)
    """Those that are at work."""
    _met: set[str] = field(default_factory=set)
    """Ids of the nodes that had their rank."""
    _cut: bool = False
    _last_error: WebGymError | None = None
    """Why the last rank that is out is out."""

    def __post_init__(self) -> None:
        self.head = Head(self.plan, self.run, self.settings, self.sink)

    async def execute(
        self, watch: Awaitable[None] | None = None, unjudged: Iterable[Trajectory] = ()
    ) -> dict[str, Any]:
        """Run everything that is owed and return the summary event, as `Rollout.execute` does.

        Raises `UsageError` when a node can't take part, `JobError` when all ranks are lost.
        """
        try:
            async with (
                self.opener(self.run, self.settings, PolicyEndpoint(), "") as parts,
                asyncio.TaskGroup() as group,
            ):
                beside = [*self.head.judges(group, parts.judge, unjudged), group.create_task(self._show())]
                if watch is not None:
                    beside.append(group.create_task(_watch(watch)))
                await self._work(group, beside, watched=watch is not None)
                await self.head.judged_all()
                for task in beside:
                    task.cancel()
        except* (WebGymError, OSError) as errors:  # OSError: the reader of our events is gone
            raise errors.exceptions[0] from None
        finally:
            await self._dismiss()
        head = self.head
        summary = summarize(self.run, self.plan, self.acting.name, head.monitor, head.judge_down)
        return {**summary, **head.facts(), "ranks": len(self._met), "ranks_lost": head.lost}

    async def _work(self, group: asyncio.TaskGroup, beside: list[asyncio.Task[None]], *, watched: bool) -> None:
        """Have ranks work until all is done, those of nodes that join later too."""
        if self.settings.rollout.completion_threshold < 1:
            beside.append(group.create_task(self._cut_late()))
        talks = await self._recruit(group)
        if not talks:
            raise UsageError(
                "no node of the Ray cluster can run a rank",
                hint=f"ray status: each rank takes {self.settings.rollout.ray_cpus:g} CPU (rollout.ray_cpus)",
            )
        while not self._over or self._ranks:
            done, talks = await asyncio.wait(talks, timeout=NEW_NODES, return_when=asyncio.FIRST_COMPLETED)
            for talk in done:
                self._last_error = talk.result() or self._last_error
            if not self._over:
                talks |= await self._recruit(group)
            if not talks and not self._over:
                if watched:
                    await asyncio.sleep(WATCH_GRACE)
                raise self._deserted()

    @property
    def _over(self) -> bool:
        return self._cut or self.head.ledger.over

    def _deserted(self) -> WebGymError:
        waiting, last = len(self.head.ledger.waiting), self._last_error
        if last is None:
            return JobError(f"no rank is left, and {waiting} episodes are owed", hint=_AGAIN)
        return type(last)(f"{last}; no rank is left, and {waiting} episodes are owed", hint=last.hint or _AGAIN)

    async def _recruit(self, group: asyncio.TaskGroup) -> set[asyncio.Task[WebGymError | None]]:
        """Post a rank to each node that has had none, and return the talks with them."""
        offered = await asyncio.to_thread(self.cluster.nodes, self.settings.rollout.ray_cpus)
        fresh = [node for node in offered if node.id not in self._met]
        if not fresh:
            return set()
        first = len(self._met)
        self._met.update(node.id for node in fresh)
        async with self._marker() as marker:
            posts = (self._post(number, node, marker, len(fresh)) for number, node in enumerate(fresh, first))
            ranks = await asyncio.gather(*posts, return_exceptions=True)
        for failed in ranks:
            if isinstance(failed, BaseException):
                raise failed
        return {group.create_task(self._talk(rank)) for rank in ranks if isinstance(rank, Rank)}

    @asynccontextmanager
    async def _marker(self) -> AsyncIterator[str]:
        """Write a file by which ranks know the run's folder, and remove it with their answers to it."""
        marker = self.run.status().parent / f"marker-{uuid4().hex}"
        write_atomic(marker, "")
        try:
            yield str(marker)
        finally:
            for file in marker.parent.glob(f"{marker.name}*"):
                file.unlink(missing_ok=True)

    async def _post(self, number: int, node: Node, marker: str, ranks: int) -> Rank | None:
        """Make a rank on a node and have it begin; None when Ray can't. Raises `UsageError` where the node is unfit."""
        handle = self.cluster.hire(RolloutRank, node, cpus=self.settings.rollout.ray_cpus)
        rank = Rank(number, node, handle)
        self._ranks[number] = rank
        try:
            posting = self._posting(rank, marker, ranks)
            answer = await self.cluster.ask(rank.handle.arrive, posting.model_dump_json(), seconds=ARRIVAL)
            arrival = Arrival.model_validate_json(answer)
            await self._check(rank, arrival, marker)
            await self.cluster.ask(rank.handle.begin, self.opener, self._secrets(), seconds=ARRIVAL)
        except ActorLostError as error:
            self._say(rank, f"did not begin: {error}")
            await self._part(rank)
            return None
        place = {"rank": number, "host": arrival.host, "node": node.id, "pid": arrival.pid}
        self.sink({"event": "rank", **place, "message": f"{rank.name} is at work"})
        return rank

    def _posting(self, rank: Rank, marker: str, ranks: int) -> Posting:
        # The threshold counts over all ranks: it is the driver's.
        rollout = self.settings.rollout.model_copy(update={"completion_threshold": 1.0})
        share = self.plan.owed[rank.number :: ranks] if len(self._met) == ranks else ()
        return Posting(
            rank=rank.number,
            root=str(self.run.root),
            marker=marker,
            settings=self.settings.model_copy(update={"rollout": rollout}),
            split=self.plan.split,
            iteration=self.plan.iteration,
            policy=self.plan.policy,
            given_up=self.plan.given_up,
            share=tuple(Ticket.of(owed) for owed in share),
            acting=self.acting,
            environment=self.environment,
        )

    async def _check(self, rank: Rank, arrival: Arrival, marker: str) -> None:
        if arrival.version != webgym_cli.__version__:
            raise UsageError(
                f"{rank.node.name} has webgym {arrival.version}, this is {webgym_cli.__version__}",
                hint=f'pip install "webgym[ray]=={webgym_cli.__version__}" on {rank.node.name}',
            )
        answer = self.run.status().parent / f"{marker}.{rank.number}"
        if arrival.fault is not None or not await wait_for_file(answer, MARKER_SECONDS):
            raise UsageError(
                f"{rank.node.name} ({rank.node.address}) does not see {self.run.root} as it is here",
                hint="put the run on a file system that every node mounts at the same path",
            )

    def _secrets(self) -> dict[str, str]:
        """Return the keys that ranks need: they travel in a call's arguments, never in a file or a log."""
        names = (POLICY_KEY, self.settings.judge.api_key_env_var, *self.settings.webarena.password_variables())
        return {name: os.environ[name] for name in names if os.environ.get(name)}

    async def _talk(self, rank: Rank) -> WebGymError | None:
        """Give a rank its episodes and take in its reports until it ends; return its error, if it had one.

        Raises what concerns all ranks: wrong usage, a store that can't be written.
        """
        error: WebGymError | None = None
        try:
            while True:
                rank.sent += 1
                orders = self.head.orders(rank.number, rank.sent, rank.heard, rank.wanting, cut=self._cut)
                answer = await self.cluster.ask(rank.handle.exchange, orders.model_dump_json(), seconds=SILENCE)
                report = Report.model_validate_json(answer)
                self._take(rank, report)
                if report.ended:
                    break
            error = report.fault.error(rank.name) if report.fault else None
        except ActorLostError as lost:
            error = JobError(f"{rank.name}: {lost}", hint=_AGAIN)
        if isinstance(error, UsageError | StoreError) and not isinstance(error, VenvError):
            raise error
        await self._part(rank)
        if error is not None and not self._over:
            self._say(rank, f"is out: {str(error).removeprefix(f'{rank.name}: ')}")
        again = await self.head.give_up(rank.number, failed=error is not None)
        if again and self._ranks and not self._over:
            self.sink({"event": "note", "message": f"{again} episodes of {rank.name} go to the others"})
        return error

    def _take(self, rank: Rank, report: Report) -> None:
        for item in report.items[max(0, rank.heard - report.first) :]:
            rank.heard += 1
            self.head.take(rank.number, item, cut=self._cut)
        rank.wanting = report.wanting
        self.head.note(rank.number, report)

    def _say(self, rank: Rank, what: str) -> None:
        message = f"{rank.name} {what}"
        self.sink({"event": "rank_lost", "rank": rank.number, "host": rank.node.name, "message": message})

    async def _part(self, rank: Rank) -> None:
        """End a rank's process: one that does not answer might still write."""
        if self._ranks.pop(rank.number, None):
            await self.cluster.kill(rank.handle)

    async def _cut_late(self) -> None:
        """Once enough is done over all ranks, give the rest its grace and then end the round."""
        settings = self.settings.rollout
        await self.head.reached(math.ceil(settings.completion_threshold * len(self.plan.owed)))
        await asyncio.sleep(settings.completion_grace)
        self._cut = True

    async def _show(self) -> None:
        while True:
            if snapshot := self.head.snapshot():
                self.sink({"event": "status", "transient": True, **snapshot})
            await asyncio.sleep(0.5)

    async def _dismiss(self) -> None:
        """Have the ranks that are left store what runs as cancelled, close their browsers and end."""
        await asyncio.gather(*(self._send_home(rank) for rank in tuple(self._ranks.values())))

    async def _send_home(self, rank: Rank) -> None:
        try:
            with suppress(ActorLostError, OSError):  # OSError: the reader of our events is gone
                answer = await self.cluster.ask(rank.handle.dismiss, rank.heard, seconds=_FAREWELL)
                self._take(rank, Report.model_validate_json(answer))
        finally:
            await self._part(rank)


async def _watch(watch: Awaitable[None]) -> None:
    await watch
