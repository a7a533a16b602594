"""Asynchronous loop: a collector that never waits for the trainer and an updater, in one event loop.

Each batch is written to the ledger before training starts, and all other state is derived from disk. A loop that is
killed at any moment and restarted continues with the batches of the ledger and rolls out the owed episodes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain

from webgym_cli.agent.client.gate import PolicyGate, ServedPolicy
from webgym_cli.errors import JobError, WebGymError
from webgym_cli.jobs.workers import race, task_group
from webgym_cli.loop import preparation, rollouts, training
from webgym_cli.loop.admission import Admission
from webgym_cli.loop.async_metrics import AsyncMetrics
from webgym_cli.loop.collector import Collector, EpisodeStream
from webgym_cli.loop.context import StageContext
from webgym_cli.loop.loop_plan import Deadline, LoopPlan
from webgym_cli.loop.rollout_setup import enter_sites, format_rollout_summary, plan_current_rollout
from webgym_cli.loop.training import current_data
from webgym_cli.records.batch import TrainingBatch
from webgym_cli.records.events import rename_event
from webgym_cli.records.sampling import PolicyVersion
from webgym_cli.records.series import VLLM
from webgym_cli.records.stored_events import BatchEvent
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.engine import RolloutEngine, make_claims
from webgym_cli.rollout.memory_limiter import default_concurrency
from webgym_cli.rollout.plan import RolloutPlan
from webgym_cli.rollout.queue import SharedRollouts, SlotPool
from webgym_cli.rollout.resources import name_policy
from webgym_cli.store.checkpoints import version
from webgym_cli.store.metrics import measure_ends, read_async_batches, read_batches, read_records
from webgym_cli.util.text import hide_passwords

# Weight digest recorded for an external policy server.
UNKNOWN = "unknown"


@dataclass(slots=True)
class AsyncLoop:
    """Execution of the asynchronous part of a planned loop."""

    plan: LoopPlan
    context: StageContext
    deadline: Deadline | None = None
    shared: SharedRollouts = field(init=False)
    collector: Collector = field(init=False)
    metrics: AsyncMetrics = field(init=False)
    _pending: dict[int, TrainingBatch] = field(default_factory=dict)
    """Batches in the ledger by parent version."""
    _urls: tuple[str, ...] = ()
    """Base URLs of the policy servers that the collector uses."""
    _engine: RolloutEngine | None = None
    _evaluation: asyncio.Task[None] | None = None
    _evaluated: PolicyGate = field(default_factory=PolicyGate)
    """Gate of the newest evaluation."""
    _watching: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the servers are watched, which may restart them, and while they are changed."""

    def __post_init__(self) -> None:
        """Restore the state from the stored batches."""
        run, settings, start = self.context.run, self.context.settings, version(self.context.run)
        self._pending = read_async_batches(run, start)
        first, data = min(self._pending, default=start), current_data(run, settings)
        used = frozenset(chain.from_iterable(batch.used_episodes for batch in self._pending.values()))
        judged = bool(settings.judge.base_url)
        self.metrics = AsyncMetrics(run)
        slots = SlotPool(default_concurrency(settings.rollout))
        self.shared = SharedRollouts(PolicyGate(), slots, make_claims(settings))
        self.collector = Collector(
            EpisodeStream(run, settings, data.group_by(settings), judged=judged, used=used, window=first),
            Admission(
                batch_size=settings.rollout.episodes,
                max_staleness=settings.loop.max_staleness,
                parent=max(self._pending, default=start - 1) + 1,
                last=self.plan.iterations,
                served=start,
                waits=settings.loop.stale == "wait",
                filters=data.filters_groups(run, settings),
                max_batches=settings.rl.data.filter_groups.max_num_gen_batches,
            ),
            self.shared.claims,
            self._on_opened,
            self._on_closed,
        )

    async def execute(self) -> None:
        """Train the planned policy versions and evaluate those that are due.

        Raises the error of the task (collector or updater) that fails first; the other is cancelled.
        """
        async with self.shared.gate.closed():
            await self._serve()
        self.shared.meter.take_lap()  # what passed before is of no episode
        async with task_group() as group:
            watching = group.create_task(self.metrics.watch(self.collector, self.shared.gate, self.context.sink))
            collecting = group.create_task(self._collect())
            await self._update(group)
            self.collector.end()
            if self._engine is not None:
                self._engine.stop_early()
            await collecting
            watching.cancel()

    async def _collect(self) -> None:
        """Roll out the admitted groups until the collector ends."""
        collector, context = self.collector, self.context
        plans = collector.stream.plans
        for plan in plans.values():
            await self._on_opened(plan)
        if not plans:
            await collector.open_window()
        merged = reduce(RolloutPlan.extend, plans.values())
        async with rollouts.open_collection(context, merged, collector, self._on_outcome, self.shared) as engine:
            self._engine = engine
            self.metrics.monitor = engine.monitor
            unjudged = chain.from_iterable(rollouts.read_unjudged(context, plan) for plan in plans.values())
            await engine.run_all(self._watch_servers(), unjudged)

    async def _update(self, group: asyncio.TaskGroup) -> None:
        """Prepare and train successive batches, and start the evaluations that are due.

        Raises `OutOfTimeError` where the next update can't end before the deadline.
        """
        run = self.context.run
        start = version(run)
        for parent in range(start, self.plan.iterations):
            self._require_time()
            await self._start_evaluation(group)
            await self._prepare(parent)
            self._require_time()  # the wait for a full batch may have taken it
            await self._train()
            if any(self.plan.has_reached(run, number) for number in range(start, parent + 1)):
                return
        await self._start_evaluation(group)
        await self._finish_evaluation()

    def _require_time(self) -> None:
        if self.deadline is not None:
            self.deadline.require_time("update")

    async def _prepare(self, parent: int) -> None:
        """Write the batch of version `parent`: the one in the ledger, else wait until admission has a full one."""
        run, context, began = self.context.run, self.context, time.monotonic()
        if parent in self._pending:
            await preparation.prepare_selection(context, self._pending[parent].selection)
            waited = 0.0
        else:
            with self.metrics.waiting("the trainer waits for episodes"):
                while (chosen := self.collector.admission.choose()) is None:
                    await self.collector.wait_change()
            waited = time.monotonic() - began
            iterations = current_data(run, context.settings).add_older(run, context.settings, chosen.iterations)
            await preparation.prepare_selection(context, chosen.select(iterations, measure_ends(run, iterations)))
            self.collector.use_up(chosen)
        if all(event.iteration != parent for event in read_records(run, BatchEvent)):  # a kill may have come before it
            batch = read_batches(run)[parent]
            context.record(*self.metrics.describe_batch(batch, waited, self.shared.gate, self.collector))

    async def _train(self) -> None:
        """Train the next version and serve it; if training takes all servers' GPUs, requests are held meanwhile."""
        beside = not self.context.serving.yields_gpus or await self._leave_to_others()
        if beside:
            await training.train(self.context)
            if await self.context.serving.serve_beside():
                self._announce_served()
                await self._drop_adapters()
                return
        await self._finish_evaluation()  # an evaluation must run on one version from start to end
        async with self._paused():
            if not beside:
                await training.train(self.context)
            await self._serve()

    async def _leave_to_others(self) -> bool:
        """Release this node's GPUs and route requests to the servers of other nodes; return whether there are any."""
        serving, gate = self.context.serving, self.shared.gate
        if not serving.other_addresses:
            return False
        async with self._paused():
            await serving.release_gpus()
            gate.policy = replace(gate.policy, servers=serving.other_addresses)
        return True

    @asynccontextmanager
    async def _paused(self) -> AsyncIterator[None]:
        """Hold new requests within the block, which begins when those in flight have ended, to change the servers."""
        with self.metrics.waiting("the change of weights waits for the policy's requests"):
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(self.shared.gate.closed())
                await stack.enter_async_context(self._watching)
                held = stack.pop_all()
        async with held:
            yield

    async def _serve(self) -> None:
        """Serve the current version and switch all requests to it. The gate must be closed."""
        context, before = self.context, self._urls
        if context.settings.rollout.policy == VLLM:
            with self.metrics.waiting("the policy's requests wait for the servers"):
                self._urls = await context.serving.current()
            if before and self._urls != before:
                now, then = (hide_passwords(", ".join(urls)) for urls in (self._urls, before))
                raise JobError(
                    f"the policy's servers came back at {now} in place of {then}",
                    hint=f"webgym resume {context.run.root}",
                )
        self._announce_served()

    def _announce_served(self) -> None:
        """Switch new requests to the current version."""
        context, number = self.context, version(self.context.run)
        name = name_policy(context.run, context.settings, context.settings.rollout.policy)
        policy = ServedPolicy(PolicyVersion(number=number, digest=UNKNOWN), name)
        ours = context.settings.rollout.policy == VLLM
        self.shared.gate.policy = context.serving.policy if ours else policy
        self.collector.set_served(number)

    async def _drop_adapters(self) -> None:
        """Unload the adapters that no request uses any more."""
        evaluates = self._evaluation is not None and not self._evaluation.done()
        pinned = self._evaluated.models if evaluates else frozenset[str]()
        await self.context.serving.drop_adapters(self.shared.gate.models | pinned)

    async def _watch_servers(self) -> None:
        """Raise `JobError` when the last server is lost.

        While the gate is closed and no request is in flight, the code that closed it changes the servers and raises its
        own errors. Until then a server that hangs would hold the requests, and with them the gate.
        """
        while True:
            await self.shared.gate.wait_open()
            async with self._watching, race(self.context.serving.watch(), self.shared.gate.wait_closed()) as tasks:
                for task in tasks if tasks[0].done() else ():
                    await task

    async def _start_evaluation(self, group: asyncio.TaskGroup) -> None:
        """Start the evaluation of the served version if it is due, concurrently with the training rollouts.

        It uses that version to its end: an adapter by its name; full weights because a weight update waits for it.
        """
        run, context = self.context.run, self.context
        if self.plan.is_evaluation_due(run):
            await self._finish_evaluation()
            by_name = self.shared.gate.policy.model
            self._evaluated = PolicyGate(self.shared.gate.policy) if by_name else self.shared.gate
            plan = plan_current_rollout(run, context.settings, Split.TEST, context.settings.rollout.policy)
            self._evaluation = group.create_task(self._evaluate(plan))

    async def _evaluate(self, plan: RolloutPlan) -> None:
        shared = replace(self.shared, gate=self._evaluated)
        summary = await rollouts.execute_rollout(self.context, plan, shared)
        self.context.record(rename_event(summary, "evaluation"))

    async def _finish_evaluation(self) -> None:
        if self._evaluation is not None:
            with self.metrics.waiting("the new version waits for the evaluation of the one before"):
                await self._evaluation
            self._evaluation = None

    async def _on_opened(self, plan: RolloutPlan) -> None:
        self.metrics.open_window(plan)
        await enter_sites(plan, self.context.settings, self.context.sink)

    def _on_outcome(self, trajectory: Trajectory, judged: bool) -> None:
        self.metrics.record(trajectory, judged)
        self.collector.record(trajectory)
        if self._engine is not None and self._engine.judge_down:
            raise WebGymError(
                f"the judge does not answer: {self._engine.judge_down}",
                hint=f"webgym resume {self.context.run.root} once it does: all is stored",
            )

    def _on_closed(self, window: int) -> None:
        self.collector.stream.plans.pop(window, None)
        if summary := self.metrics.close_window(window):
            self.context.record(summary, format_rollout_summary(summary))
