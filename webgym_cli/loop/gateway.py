"""The acting policy of a rollout or a gateway, and before it the recorder of agents that are not webgym's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from webgym_cli.agent.client.gate import ServedPolicy
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.config.model import Settings
from webgym_cli.errors import UsageError
from webgym_cli.gateway.command import AgentCommand, CommandEpisode
from webgym_cli.gateway.recorder import Recorder
from webgym_cli.gateway.server import GatewayServer
from webgym_cli.jobs.workers import gather_or_cancel
from webgym_cli.loop.context import StageContext
from webgym_cli.loop.rollout_setup import parse_command
from webgym_cli.records.events import make_event
from webgym_cli.records.series import ORACLE, VLLM
from webgym_cli.records.task import Split
from webgym_cli.rollout.agents import Agent, ModelAgent
from webgym_cli.rollout.resources import PolicyEndpoint, apply_test_sampling, name_policy, open_agent, policy_urls
from webgym_cli.rollout.runner import LocalRunner
from webgym_cli.rollout.slots import SharedRollouts
from webgym_cli.serve.vllm_arguments import logprobs_kind
from webgym_cli.store.checkpoints import policy_path, version
from webgym_cli.store.index.query import refresh_index
from webgym_cli.venvs.locate import resolve_device


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
    each = context.settings.serve.workers if resolve_device(context.settings.venvs.device) == "cuda" else 0
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
    """Serve the gateway until cancelled, or until the last policy server dies (`JobError`)."""
    settings = apply_test_sampling(context.settings, split)
    acting = await start_policy(context, policy)
    try:
        async with open_agent(context.run, settings, acting) as agent:
            recorder = make_recorder(context, settings, acting, agent, split)
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
        command = AgentCommand(parse_command(context.settings.rollout.agent), recorder, server, context.logs / "agents")
        runner.make_episode = partial(CommandEpisode, command=command)
        yield
