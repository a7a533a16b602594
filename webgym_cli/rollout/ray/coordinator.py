"""What the driver of a scaled-out rollout knows: who has which episode, and what all ranks together have done."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.records.episode import Episode
from webgym_cli.records.events import EventSink
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.judging import JudgeQueue, TrajectoryJudge
from webgym_cli.rollout.monitoring.latency import Histogram
from webgym_cli.rollout.monitoring.monitor import Monitor
from webgym_cli.rollout.monitoring.snapshot import complete, ended, merge
from webgym_cli.rollout.plan import PendingEpisode, RolloutPlan, plan_rollout
from webgym_cli.rollout.ray.assignments import Ledger
from webgym_cli.rollout.ray.messages import Item, Orders, Report, Ticket
from webgym_cli.store.blocklist import Blocklist
from webgym_cli.store.buffer import scan
from webgym_cli.store.run import RunDir
from webgym_cli.tasks.site import site_of

_COUNTED_HERE = (
    "started_at", "elapsed", "total", "owed", "given_up", "collected", "withdrawn", "steps", "known", "successes",
    "judged", "unjudged", "skipped", "skipped_by_site", "cut", "failures", "failures_by_site",
)  # fmt: skip
"""Facts of a snapshot that the driver's own count has for all ranks, the lost ones included."""
JUDGE_RANK = 9999
"""Names the driver's own file of verdicts, beside those of the ranks."""


@dataclass(slots=True)
class Head:
    """The driver's knowledge of one rollout."""

    plan: RolloutPlan
    run: RunDir
    settings: Settings
    sink: EventSink
    ledger: Ledger = field(init=False)
    monitor: Monitor = field(init=False)
    lost: int = 0
    """Ranks that ended before their time."""
    judge_down: str = ""
    """Why the judge was given up, once it was."""
    _blocklist: Blocklist = field(init=False)
    _line: JudgeQueue | None = None
    _told: set[str] = field(default_factory=set)
    """Ids of the trajectories that were counted."""
    _awaiting: dict[int, set[str]] = field(default_factory=dict)
    """Ids of those that a rank has still to judge."""
    _status: dict[int, dict[str, Any]] = field(default_factory=dict)
    _episodes: dict[str, Episode] = field(init=False)
    _progress: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Begin with all that is owed waiting."""
        self.ledger = Ledger.of(self.plan.owed)
        self.monitor = Monitor(self.plan, 0)
        self._blocklist = Blocklist(self.run, self.settings.rollout.blocklist_hours)
        self._episodes = {episode.id: episode for episode in self.plan.episodes}

    def judges(
        self, group: asyncio.TaskGroup, judge: TrajectoryJudge | None, unjudged: Iterable[Trajectory]
    ) -> list[asyncio.Task[None]]:
        """Start judging what no rank will: what earlier commands left, and later what a lost rank leaves."""
        if judge is None:
            return []
        self._line = line = JudgeQueue(judge, self.run, self.monitor, JUDGE_RANK, self._judged)
        for trajectory in unjudged:
            line.put(trajectory)
        return [group.create_task(line.work()) for _ in range(self.settings.judge.concurrency)]

    async def judged_all(self) -> None:
        """Wait until the driver's own judge has nothing left."""
        if self._line:
            await self._line.drain()
            self.judge_down = self._line.down or self.judge_down

    async def reached(self, finished: int) -> None:
        """Wait until so many episodes need nothing more."""
        while self.ledger.finished < finished:
            self._progress.clear()
            await self._progress.wait()

    def orders(self, rank: int, number: int, heard: int, wanting: int, *, cut: bool) -> Orders:
        """Return what a rank is told next: the episodes that it gets, or that nothing more will come."""
        given = [] if cut else self.ledger.hand_out(rank, wanting, self._is_shut)
        ranks = max(1, len(self._status))
        return Orders(
            number=number,
            heard=heard,
            tickets=tuple(Ticket.of(owed) for owed in given),
            depth=len(self.ledger.waiting) // ranks,
            over=cut or self.ledger.over,
            cut=cut,
        )

    def take(self, rank: int, item: Item, *, cut: bool) -> None:
        """Take in one thing that happened on a rank, and tell of it."""
        if item.kind == "event" and item.event is not None:
            if item.event["event"] == "blocked":
                self._blocklist = Blocklist(self.run, self.settings.rollout.blocklist_hours)
            self.sink(item.event)
        elif item.trajectory is not None and item.kind == "stored":
            self._stored(rank, item.trajectory, cut=cut)
        elif item.trajectory is not None:
            self._awaiting.get(rank, set()).discard(item.trajectory.id)
            self.sink(self.monitor.record_judged(item.trajectory))
        elif item.ticket is not None and item.kind == "returned":
            self.ledger.give_back(rank, item.ticket.owed(self._episodes))
        elif item.ticket is not None:
            self._finished(rank, item.ticket)

    def note(self, rank: int, report: Report) -> None:
        """Keep what a rank tells of itself."""
        if report.status is not None:
            self._status[rank] = report.status
        self.judge_down = report.judge_down or self.judge_down

    async def give_up(self, rank: int, *, failed: bool) -> int:
        """Take back what a rank had: what is on disk counts, the rest goes to others. Return how much that is."""
        self.lost += failed
        held, awaiting = self.ledger.held(rank), self._awaiting.pop(rank, set())
        if rank in self._status:
            self._status[rank] = ended(self._status[rank])
        if not held and not awaiting:
            return 0
        owed, untold, judged = await asyncio.to_thread(self._on_disk, held, awaiting)
        for trajectory in untold:
            self._stored(None, trajectory, cut=False)
        for trajectory in judged:
            if not trajectory.awaits_judgement:
                self.sink(self.monitor.record_judged(trajectory))
        again = self.ledger.reclaim(rank, owed)
        self._progress.set()
        if self._line and not self.judge_down:
            for trajectory in (*untold, *judged):
                if trajectory.awaits_judgement:
                    self._line.put(trajectory)
        return again

    def snapshot(self) -> dict[str, Any] | None:
        """Return the board of all ranks together; None before the first of them has told of itself."""
        if not self._status:
            return None
        mine = self.monitor.snapshot()
        merged = merge([*self._status.values(), mine])
        counted = {key: mine[key] for key in _COUNTED_HERE}
        queues = {**merged["queues"], "owed": len(self.ledger.waiting)}
        return complete({**merged, **counted, "queues": queues, "ranks": len(self._status)})

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return what the summary has from the ranks: `stages` (count, p50, p95, total in seconds) and `servers`."""
        merged = merge([*self._status.values(), self.monitor.snapshot()])
        stages = {name: Histogram.from_json(stage).facts() for name, stage in merged["stages"].items()}
        return {"stages": stages, **({"servers": merged["servers"]} if merged["servers"] else {})}

    def _is_shut(self, owed: PendingEpisode) -> bool:
        site = site_of(owed.episode.task.start_url)
        shut = site in self._blocklist.sites()
        if shut:
            self.monitor.record_skipped(owed, f"{site} is on the blocklist")
        return shut

    def _stored(self, rank: int | None, trajectory: Trajectory, *, cut: bool) -> None:
        self._told.add(trajectory.id)
        self.sink(self.monitor.record_stored(trajectory))
        if cut and trajectory.outcome.failure is FailureKind.CANCELLED:
            self.monitor.record_stopped_early(trajectory)
        if rank is not None and self._line and trajectory.awaits_judgement:
            self._awaiting.setdefault(rank, set()).add(trajectory.id)

    def _judged(self, trajectory: Trajectory, judgement: Judgement) -> None:
        self.sink(self.monitor.record_judged(trajectory))

    def _finished(self, rank: int, ticket: Ticket) -> None:
        owed = self.ledger.finish(rank, ticket.episode)
        name = f"{ticket.episode}.{ticket.attempt}" if ticket.attempt else ticket.episode
        if owed is not None and name not in self._told:
            self.monitor.record_skipped(owed, f"{site_of(owed.episode.task.start_url)} is on the blocklist")
        self._progress.set()

    def _on_disk(
        self, held: dict[str, PendingEpisode], awaiting: set[str]
    ) -> tuple[dict[str, PendingEpisode], list[Trajectory], list[Trajectory]]:
        """Return what is still owed, by episode; what a lost rank stored but did not tell; what it had to judge."""
        plan, count = self.plan, len(self.plan.episodes)
        now = plan_rollout(self.run, self.settings, plan.split, plan.iteration, count, plan.policy)
        untold, judged = [], []
        for trajectory in scan(self.run, plan.split, plan.iteration):
            was = held.get(trajectory.episode)
            if trajectory.id in awaiting:
                judged.append(trajectory)
            elif was is not None and trajectory.attempt >= was.attempt and trajectory.id not in self._told:
                untold.append(trajectory)
        return {owed.episode.id: owed for owed in now.owed}, untold, judged
