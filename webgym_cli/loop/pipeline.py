"""Pipeline stages of one run; each does only the work that is owed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from webgym_cli.agent.client.gate import ServedPolicy
from webgym_cli.config.model import Settings
from webgym_cli.errors import UsageError
from webgym_cli.loop import preparation
from webgym_cli.loop.rollout_setup import (
    enter_sites,
    format_plan,
    format_rollout_summary,
    open_judge,
    plan_current_rollout,
    require_one_environment,
)
from webgym_cli.loop.serving import Serving
from webgym_cli.prepare.sft.execute import refresh_train_config
from webgym_cli.records.batch import BatchSelection
from webgym_cli.records.dataset import Prepared, RlData
from webgym_cli.records.events import Event, EventSink, JudgeSummary, RolloutSummary, make_event
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rewards.engine import Scorer, ScoringEngine
from webgym_cli.rewards.judge.scorer import JudgeScorer, format_judge_summary
from webgym_cli.rewards.judge.scripted import open_scripted
from webgym_cli.rewards.selection import ScoringPlan, ScoringQuery, plan_scoring
from webgym_cli.rollout.engine import RolloutEngine
from webgym_cli.rollout.plan import RolloutPlan, write_plan
from webgym_cli.rollout.queue import EpisodeQueue
from webgym_cli.rollout.resources import ORACLE, VLLM, PolicyEndpoint, apply_test_sampling, name_policy, policy_urls
from webgym_cli.rollout.runner import EpisodeRunner, open_runner
from webgym_cli.rollout.slots import SharedRollouts
from webgym_cli.serve.logprobs import logprobs_kind
from webgym_cli.store.buffer import scan_stored
from webgym_cli.store.checkpoints import checkpoints, repair_link, version
from webgym_cli.store.index.query import refresh_index
from webgym_cli.store.metrics import append_event, read_events
from webgym_cli.store.run import RunDir
from webgym_cli.tracking.execute import Tracker
from webgym_cli.train.execute import execute as execute_training
from webgym_cli.train.process_env import report_offline
from webgym_cli.train.registry import current_backend
from webgym_cli.train.training_plan import TrainPlan

SummaryT = TypeVar("SummaryT", bound=Event)


@dataclass(slots=True)
class Pipeline:
    """Pipeline stages of one run, in one process. Async context manager: exit stops the servers and tracking."""

    run: RunDir
    settings: Settings
    logs: Path
    """Log folder of this attempt."""
    sink: EventSink
    serving: Serving = field(init=False)
    """Servers of the current policy."""
    tracker: Tracker = field(init=False)
    """Sends recorded metrics to Weights & Biases."""

    def __post_init__(self) -> None:
        """Create serving and tracking without starting them."""
        self.serving = Serving(self.run, self.settings, self.logs, self.sink)
        self.tracker = Tracker(self.run, self.settings, self.logs, self.sink)

    async def __aenter__(self) -> Pipeline:
        """Repair the state after a crash: an incomplete rename, and a training without its metrics event."""
        repair_link(self.run, self.settings)
        self._note_trainings()
        self.tracker.note()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        """Stop the servers; flush tracking, without waiting for it after a signal."""
        try:
            await self.serving.stop()
        finally:
            await self.tracker.close(in_time=kind is None or issubclass(kind, Exception))

    async def rollout(self, split: Split, policy: str, episodes: int | None = None) -> RolloutSummary:
        """Run the pending episodes of the current iteration and return the summary."""
        return await self.execute_rollout(plan_current_rollout(self.run, self.settings, split, policy, episodes))

    async def execute_rollout(self, plan: RolloutPlan, shared: SharedRollouts | None = None) -> RolloutSummary:
        """Run the pending episodes of a plan, and more to replace groups without gradient; return the summary.

        `shared`: state shared with the other rollouts of an asynchronous loop.
        """
        summary = await self._execute_planned(plan, shared)
        while more := preparation.count_missing_episodes(self.run, self.settings, plan):
            message = f"{more} more episodes in place of groups whose rewards are all equal (rl.data.filter_groups)"
            self.sink({"event": "note", "message": message})
            further = plan_current_rollout(self.run, self.settings, plan.split, plan.policy, len(plan.episodes) + more)
            plan = replace(further, wanted=plan.wanted)
            summary = await self._execute_planned(plan, shared)
        return summary

    async def _execute_planned(self, plan: RolloutPlan, shared: SharedRollouts | None) -> RolloutSummary:
        split, policy = plan.split, plan.policy
        write_plan(self.run, plan)
        self._announce(plan.to_json(), format_plan(plan), plan.damaged)
        await enter_sites(plan, self.settings, self.sink)
        # Without pending episodes neither server nor browser is needed, only judging and the summary.
        acting = policy if plan.owed else ORACLE
        async with self._open_runner(plan, acting, shared) as runner, open_judge(self.run, self.settings) as judge:
            claims = shared.claims if shared else None
            engine = RolloutEngine(plan, self.run, self.settings, runner, self.sink, judge, claims=claims)
            watched = acting == VLLM and not shared  # the loop watches the servers itself
            watch = self.serving.watch() if watched else None
            summary = await engine.execute(watch, self.read_unjudged(plan) if judge else ())
        message = format_rollout_summary(summary)
        if split is Split.TRAIN:
            self.record(summary, message)
        else:  # the loop records it as an evaluation
            self.sink(make_event(**summary, message=message))
        refresh_index(self.run, self.sink)
        return summary

    @asynccontextmanager
    async def open_collection(
        self,
        plan: RolloutPlan,
        queue: EpisodeQueue,
        on_outcome: Callable[[Trajectory, bool], None],
        shared: SharedRollouts,
    ) -> AsyncIterator[RolloutEngine]:
        """Yield an engine for the training episodes of a queue. `plan`: plan of the first episodes."""
        (environment,) = {episode.task.environment for episode in plan.episodes}
        settings = self.settings
        async with (
            open_runner(self.run, settings, await self._acting(plan.policy, shared), environment, shared) as runner,
            open_judge(self.run, settings) as judge,
        ):
            yield RolloutEngine(plan, self.run, settings, runner, self.sink, judge, queue, on_outcome=on_outcome)

    async def judge(self, query: ScoringQuery) -> JudgeSummary:
        """Judge the stored trajectories that the query selects and return the summary."""
        async with open_scripted(self.settings.judge) as settings:
            scorer = JudgeScorer(settings)
            plan = plan_scoring(self.run, scorer, query)
            return await self.score(plan, nullcontext(scorer), format_judge_summary)

    async def score(
        self,
        plan: ScoringPlan,
        opened: AbstractAsyncContextManager[Scorer[SummaryT]],
        format_summary: Callable[[SummaryT], str],
    ) -> SummaryT:
        """Score the planned trajectories and return the summary. `opened`: context manager of the scorer."""
        skipped = sum(plan.skipped.values())
        message = f"{len(plan.pending)} trajectories to {plan.scorer.stage}, {skipped} skipped"
        self._announce(plan.to_json(), message, plan.damaged)
        async with opened as scorer:
            summary = await ScoringEngine(plan, self.run, scorer, self.sink).execute()
        self.record(summary, format_summary(summary))
        refresh_index(self.run, self.sink)
        return summary

    async def prepare(self, *, again: bool = False) -> Prepared | RlData:
        """Write the training data of the current iteration unless it is up to date; `again` forces it."""
        began = time.monotonic()
        prepared, fresh = await preparation.prepare(self.run, self.settings, self.sink, self.serving, again=again)
        if fresh:
            await self._note_prepared(prepared, began)
        return prepared

    async def prepare_selection(self, selection: BatchSelection) -> Prepared | RlData:
        """Write the training data of a selection unless it is up to date, in a thread."""
        began, loop = time.monotonic(), asyncio.get_running_loop()

        def sink(event: Event) -> None:
            loop.call_soon_threadsafe(self.sink, event)

        # Not `asyncio.to_thread`, which copies the context: `interruptible` would set signal handlers in that thread.
        prepared, fresh = await loop.run_in_executor(
            None, preparation.prepare_selection, self.run, self.settings, sink, selection
        )
        if fresh:
            await self._note_prepared(prepared, began)
        return prepared

    async def _note_prepared(self, prepared: Prepared | RlData, began: float) -> None:
        facts = prepared.facts() if isinstance(prepared, RlData) else prepared.model_dump(mode="json", by_alias=True)
        append_event(self.run, make_event("prepare", **facts, seconds=round(time.monotonic() - began, 2)))
        self.tracker.note()
        await preparation.check_prepared(self.run, self.settings, self.logs, self.sink)

    async def train(self, plan: TrainPlan | None = None) -> None:
        """Train by `plan`, default `plan_current_training`; releases the servers' GPUs first."""
        plan = plan or preparation.plan_current_training(self.run, self.settings)
        if plan.iteration != version(self.run):  # planned before this process locked the run
            raise UsageError(f"{self.run.root}: another command has trained it meanwhile", hint="run the command again")
        if current_backend(self.run, self.settings).data == "dataset":
            refresh_train_config(self.run, self.settings, self.sink)
        reached = await self.tracker.make_way()
        await self.serving.release_gpus()
        plan = plan if reached else report_offline(plan)
        await execute_training(plan, self.run, self.settings, self.logs, self.sink)
        self._note_trainings()

    def record(self, event: Event, message: str = "") -> None:
        """Append an event to the run's metrics and emit it, with its message if there is one."""
        append_event(self.run, event)
        self.sink(event | {"message": message} if message else event)
        self.tracker.note()

    @asynccontextmanager
    async def _open_runner(
        self, plan: RolloutPlan, policy: str, shared: SharedRollouts | None
    ) -> AsyncIterator[EpisodeRunner]:
        """Yield the runner of the episodes: local, or on the nodes of a Ray cluster."""
        environment, settings = require_one_environment(plan), apply_test_sampling(self.settings, plan.split)
        if not plan.owed or shared or self.settings.rollout.executor != "ray":
            acting = await self._acting(policy, shared)
            async with open_runner(self.run, settings, acting, environment, shared) as local:
                yield local
            return
        from webgym_cli.rollout.ray_driver import RayRunner, require_reachable

        cluster = await self.serving.connect()
        require_reachable(cluster, settings, policy)
        acting = await self._acting(policy)
        async with self.serving.forwarded_urls(cluster.here) as urls:
            remote = acting.model_copy(update={"base_urls": urls}) if policy == VLLM else acting
            opening = self.run, settings, cluster, acting, remote, environment, self.sink
            async with RayRunner(*opening) as runner:
                yield runner

    async def _acting(self, policy: str, shared: SharedRollouts | None = None) -> PolicyEndpoint:
        """Return the policy's endpoint; start webgym's own servers, or load the current weights, first.

        With `shared` only the loop changes the served weights.
        """
        if policy == ORACLE:
            return PolicyEndpoint()
        if policy != VLLM:
            name = name_policy(self.run, self.settings, policy)
            return PolicyEndpoint(base_urls=policy_urls(policy), served=ServedPolicy(name=name))
        logprobs = logprobs_kind(self.settings)  # raises for an unsupported mode before a server is started
        base_urls = self.serving.base_urls if shared else await self.serving.current()
        served = shared.gate.policy if shared else self.serving.policy
        return PolicyEndpoint(base_urls=base_urls, served=served, logprobs=logprobs)

    def read_unjudged(self, plan: RolloutPlan) -> Iterator[Trajectory]:
        """Yield the stored trajectories that await a judgement."""
        waiting = frozenset(plan.unjudged)
        if waiting:
            yield from (
                trajectory
                for trajectory in scan_stored(self.run, plan.split, plan.iteration)
                if trajectory.id in waiting
            )

    def _announce(self, plan: Mapping[str, Any], message: str, damaged: Sequence[str]) -> None:
        """Emit a plan, its notes and the damaged lines of the buffer."""
        self.sink(make_event(**plan, message=message))
        for note in plan.get("notes", ()):
            self.sink({"event": "note", "message": note})
        for line in damaged:
            self.sink(make_event("damaged", line=line, message=f"skipped a damaged line: {line}"))

    def _note_trainings(self) -> None:
        """Record each checkpoint whose training is not in the metrics yet."""
        noted = {event.get("name") for event in read_events(self.run, "train")}
        for checkpoint in checkpoints(self.run):
            if checkpoint.name not in noted:
                self.record(make_event("train", **checkpoint.model_dump(mode="json")))
