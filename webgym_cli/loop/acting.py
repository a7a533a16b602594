"""The acting policy of a rollout or a gateway: its servers, started or brought up to date first."""

from __future__ import annotations

from webgym_cli.agent.client.gate import ServedPolicy
from webgym_cli.loop.context import StageContext
from webgym_cli.records.series import ORACLE, VLLM
from webgym_cli.rollout.resources import PolicyEndpoint, name_policy, policy_urls
from webgym_cli.rollout.slots import SharedRollouts
from webgym_cli.serve.vllm_arguments import logprobs_kind
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
