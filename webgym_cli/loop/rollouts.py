"""Rollouts of a run: planned episodes in turns, and the collection of an asynchronous loop.

They open the acting policy, or, as the gateway does, a recorder of agents that are not webgym's before it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from webgym_cli.agent.client.gate import ServedPolicy
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.config.model import Settings
from webgym_cli.errors import UsageError
from webgym_cli.gateway.command import CommandEpisode
from webgym_cli.gateway.recorder import Recorder
from webgym_cli.gateway.server import GatewayServer
from webgym_cli.jobs.workers import gather_or_cancel
from webgym_cli.loop import preparation
from webgym_cli.loop.context import StageContext
from webgym_cli.loop.rollout_setup import (
    enter_sites,
    format_plan,
    format_rollout_summary,
    open_judge,
    parse_command,
    plan_current_rollout,
    require_one_environment,
)
from webgym_cli.records.events import RolloutSummary, make_event
from webgym_cli.records.series import ORACLE, VLLM
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.agents import Agent, ModelAgent
from webgym_cli.rollout.engine import RolloutEngine
from webgym_cli.rollout.plan import RolloutPlan, write_plan
from webgym_cli.rollout.queue import EpisodeQueue, SharedRollouts
from webgym_cli.rollout.resources import PolicyEndpoint, apply_test_sampling, name_policy, open_agent, policy_urls
from webgym_cli.rollout.runner import LocalRunner, open_runner
from webgym_cli.serve.arguments import logprobs_kind
from webgym_cli.store.buffer import scan_stored
from webgym_cli.store.checkpoints import policy_path, version
from webgym_cli.store.index.query import refresh_index
from webgym_cli.util.optional import when
from webgym_cli.venvs.locate import resolve_device

if TYPE_CHECKING:
    from webgym_cli.rollout.ray_driver import RayRunner


async def start_policy(context: StageContext, policy: str, shared: SharedRollouts | None = None) -> PolicyEndpoint:
    """Return the policy's endpoint; start webgym's own servers, or load the current weights, first.

    With `shared` only the loop changes the served weights.
    """
    if policy == ORACLE:
        return PolicyEndpoint()
    if policy != VLLM:
        name = name_policy(context.run, context.settings, policy)
        return PolicyEndpoint(base_urls=policy_urls(policy), served=ServedPolicy(name=name))
    logprobs = logprobs_kind(context.settings)  # raises for an unsupported mode before a server is started
    base_urls = context.serving.base_urls if shared else await context.serving.current()
    served = shared.gate.policy if shared else context.serving.policy
    each = when(resolve_device(context.settings.venvs.device) == "cuda", context.settings.serve.workers)
    return PolicyEndpoint(base_urls=base_urls, served=served, logprobs=logprobs, gpus=len(base_urls) * each)


def make_recorder(
    context: StageContext, settings: Settings, acting: PolicyEndpoint, agent: Agent, split: Split
) -> Recorder:
    """Return a recorder before a policy. Raises `UsageError` for an expert."""
    if not isinstance(agent, ModelAgent):
        raise UsageError("an expert answers no agent's calls", hint="--policy vllm, or servers by URL")
    # Only of webgym's own servers is it known which model they have.
    own = acting.logprobs is not None
    tokens = ModelTokens(str(policy_path(context.run, settings))) if own else None
    return Recorder(context.run, settings, agent, tokens, context.sink, split, version(context.run))


async def serve_gateway(context: StageContext, split: Split, policy: str, host: str, port: int) -> None:
    """Serve the gateway until cancelled, the last policy server dies (`JobError`), or `cost.max_cost` is spent."""
    settings = apply_test_sampling(context.settings, split)
    acting = await start_policy(context, policy)
    try:
        async with open_agent(context.run, settings, acting) as agent:
            recorder = make_recorder(context, settings, acting, agent, split)
            recorder.budget = context.budget
            recorder.recover()
            async with GatewayServer(recorder, host=host, port=port) as server:
                waiting = len(recorder.sessions)
                message = f"{server.base_url} records {split} sessions of iteration {recorder.iteration}"
                facts = {"base_url": server.base_url, "split": split, "iteration": recorder.iteration, "open": waiting}
                context.sink(make_event("gateway", **facts, message=f"{message}; {waiting} are open"))
                watching = context.serving.watch() if policy == VLLM else server.closing.wait()
                await gather_or_cancel(recorder.end_expired(), watching)
    finally:
        refresh_index(context.run, context.sink)


@asynccontextmanager
async def use_agent(
    context: StageContext, runner: LocalRunner, acting: PolicyEndpoint, split: Split
) -> AsyncIterator[None]:
    """Have the agent of `rollout.agent` act in the runner's episodes within the block; experts act themselves."""
    if not context.settings.rollout.agent or not acting.base_urls:
        yield
        return
    recorder = make_recorder(context, runner.settings, acting, runner.agent, split)
    async with GatewayServer(recorder, with_sessions=False) as server:
        argv, logs = parse_command(context.settings.rollout.agent), context.logs / "agents"
        runner.make_episode = partial(CommandEpisode, argv=argv, recorder=recorder, server=server, logs=logs)
        yield


async def rollout(context: StageContext, split: Split, policy: str, episodes: int | None = None) -> RolloutSummary:
    """Run the pending episodes of the current iteration and return the summary."""
    return await execute_rollout(context, plan_current_rollout(context.run, context.settings, split, policy, episodes))


async def execute_rollout(
    context: StageContext, plan: RolloutPlan, shared: SharedRollouts | None = None
) -> RolloutSummary:
    """Run the pending episodes of a plan, and more to replace groups without gradient; return the summary.

    `shared`: state shared with the other rollouts of an asynchronous loop.
    """
    summary = await _execute_planned(context, plan, shared)
    while more := preparation.count_missing_episodes(context.run, context.settings, plan):
        message = f"{more} more episodes in place of groups whose rewards are all equal (rl.data.filter_groups)"
        context.sink({"event": "note", "message": message})
        further = plan_current_rollout(
            context.run, context.settings, plan.split, plan.policy, len(plan.episodes) + more
        )
        plan = replace(further, wanted=plan.wanted)
        summary = await _execute_planned(context, plan, shared)
    return summary


async def _execute_planned(context: StageContext, plan: RolloutPlan, shared: SharedRollouts | None) -> RolloutSummary:
    split, policy = plan.split, plan.policy
    write_plan(context.run, plan)
    context.announce(plan.to_json(), format_plan(plan), plan.damaged)
    await enter_sites(plan, context.settings, context.sink)
    # Without pending episodes neither server nor browser is needed, only judging and the summary.
    acting = policy if plan.owed else ORACLE
    async with (
        _open_runner(context, plan, acting, require_one_environment(plan), shared) as runner,
        open_judge(context.run, context.settings) as judge,
    ):
        parts = (plan, context.run, context.settings, runner, context.sink, judge)
        engine = RolloutEngine(*parts, claims=shared.claims if shared else None, budget=context.budget)
        watched = acting == VLLM and not shared  # the loop watches the servers itself
        watch = context.serving.watch() if watched else None
        summary = await engine.execute(watch, read_unjudged(context, plan) if judge else ())
    message = format_rollout_summary(summary)
    if split is Split.TRAIN:
        context.record(summary, message)
    else:  # the loop records it as an evaluation
        context.sink(make_event(**summary, message=message))
    refresh_index(context.run, context.sink)
    return summary


@asynccontextmanager
async def open_collection(
    context: StageContext,
    plan: RolloutPlan,
    queue: EpisodeQueue,
    on_outcome: Callable[[Trajectory, bool], None],
    shared: SharedRollouts,
) -> AsyncIterator[RolloutEngine]:
    """Yield an engine for the training episodes of a queue. `plan`: plan of the first episodes."""
    (environment,) = {episode.task.environment for episode in plan.episodes}
    async with (
        _open_runner(context, plan, plan.policy, environment, shared) as runner,
        open_judge(context.run, context.settings) as judge,
    ):
        parts = (plan, context.run, context.settings, runner, context.sink, judge, queue)
        yield RolloutEngine(*parts, on_outcome=on_outcome, budget=context.budget)


def read_unjudged(context: StageContext, plan: RolloutPlan) -> Iterator[Trajectory]:
    """Yield the stored trajectories that await a judgement."""
    waiting = frozenset(plan.unjudged)
    if waiting:
        yield from (
            trajectory
            for trajectory in scan_stored(context.run, plan.split, plan.iteration)
            if trajectory.id in waiting
        )


@asynccontextmanager
async def _open_runner(
    context: StageContext, plan: RolloutPlan, policy: str, environment: str, shared: SharedRollouts | None
) -> AsyncIterator[LocalRunner | RayRunner]:
    """Yield the runner of the episodes: local, or on the nodes of a Ray cluster."""
    settings = apply_test_sampling(context.settings, plan.split)
    if not plan.owed or shared or context.settings.rollout.executor != "ray":
        acting = await start_policy(context, policy, shared)
        async with (
            open_runner(context.run, settings, acting, environment, shared) as local,
            use_agent(context, local, acting, plan.split),
        ):
            yield local
        return
    if settings.rollout.agent:
        raise UsageError("rollout.agent runs on this machine only", hint="-s rollout.executor=local")
    from webgym_cli.rollout.ray_driver import RayRunner, require_reachable

    cluster = await context.serving.connect()
    require_reachable(cluster, settings, policy)
    acting = await start_policy(context, policy)
    async with context.serving.forwarded_urls(cluster.here) as urls:
        remote = acting.model_copy(update={"base_urls": urls}) if policy == VLLM else acting
        opening = context.run, settings, cluster, acting, remote, environment, context.sink
        async with RayRunner(*opening) as runner:
            yield runner
