"""Resources of a rollout: agent and environment pool. Opened in this process or in a Ray worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from webgym_cli.agent.client.gate import PolicyGate, ServedPolicy
from webgym_cli.config.model import Settings
from webgym_cli.config.secrets import refuse_keys
from webgym_cli.errors import UsageError
from webgym_cli.records.base import Record
from webgym_cli.records.sampling import Logprobs
from webgym_cli.records.series import ORACLE, VLLM, name_served
from webgym_cli.records.task import Split
from webgym_cli.rollout.agents import Agent, ModelAgent, OracleAgent
from webgym_cli.store.checkpoints import policy_name
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.util.secrets import expand_variables

_CHOICES = "--policy vllm, --policy oracle or --policy http://HOST:PORT/v1[,http://HOST:PORT/v1...]"


class PolicyEndpoint(Record):
    """Policy of a rollout: model servers, or the environment's expert."""

    base_urls: tuple[str, ...] = ()
    """OpenAI base URLs of the policy's servers, which share the requests; none: the environment's expert acts."""
    served: ServedPolicy = ServedPolicy(name=ORACLE)
    """Served policy: name, version and weight digest."""
    gpus: int = 0
    """Number of GPUs of webgym's own servers."""
    logprobs: Logprobs | None = None
    """Distribution of the servers' log-probabilities; None: unknown, because the servers are not webgym's."""


def policy_urls(policy: str) -> tuple[str, ...]:
    """Return the base URLs of `rollout.policy` or `--policy`, a comma-separated list, with their keys.

    Raises `UsageError` for an invalid or repeated URL, and for one that holds a key instead of a `$VARIABLE`.
    """
    refuse_keys("rollout.policy", policy)
    urls = tuple(expand_variables(url.strip()) for url in policy.split(","))
    server, count = Counter(_server_key(url, alone=len(urls) == 1) for url in urls).most_common(1)[0]
    if count > 1:
        raise UsageError(f"rollout.policy: {server} is named twice", hint="name each server once")
    return urls


def name_policy(run: RunDir, settings: Settings, policy: str) -> str:
    """Return the name that the episodes of a policy store. `policy`: what `rollout.policy` takes."""
    if policy == ORACLE:
        return ORACLE
    if policy == VLLM:
        return policy_name(run, settings)
    # Without credentials, in one spelling and order: the same servers are one series.
    addresses = sorted(f"{urlsplit(url).scheme}://{_server_key(url, alone=True)}" for url in policy_urls(policy))
    return name_served(settings.serve.served_model_name, ", ".join(addresses))


def _server_key(url: str, *, alone: bool) -> str:
    """Return host, port and path of a base URL without credentials, to compare servers."""
    if not alone and url in (ORACLE, VLLM):
        raise UsageError(f"rollout.policy: {url} acts alone, it can't share requests with others", hint=_CHOICES)
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"rollout.policy: {url!r} is neither vllm, oracle nor a base URL", hint=_CHOICES)
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    except ValueError as error:
        raise UsageError(f"rollout.policy: {url!r} is no address: {error}", hint=_CHOICES) from None
    if not parts.hostname:
        raise UsageError(f"rollout.policy: {url!r} is no address: it names no host", hint=_CHOICES)
    return f"{parts.hostname}:{port}{parts.path.rstrip('/')}"


def apply_test_sampling(settings: Settings, split: Split) -> Settings:
    """Return the settings with the sampling parameters of a split's episodes in `policy_config`."""
    if split is not Split.TEST:
        return settings
    return settings.with_changes(policy_config=settings.rollout.test_sampling.model_dump(exclude_none=True))


@asynccontextmanager
async def open_agent(
    run: RunDir, settings: Settings, acting: PolicyEndpoint, gate: PolicyGate | None = None
) -> AsyncIterator[Agent]:
    """Yield the agent, connected to the policy servers if there are any. `gate`: None means one that stays open."""
    if not acting.base_urls:
        yield OracleAgent(settings)
        return
    from webgym_cli.agent.client.chat_request import EncodedImages
    from webgym_cli.agent.client.load_balancer import BalancedPolicy
    from webgym_cli.agent.client.policy import ChatPolicy

    images = EncodedImages(ScreenshotStore(run.screenshots).get)  # one cache: each image is encoded once
    chats = [
        ChatPolicy(
            settings.rollout.build_endpoint(url, settings.serve.served_model_name),
            settings.policy_config,
            images,
            name=acting.served.name,
            logprobs=acting.logprobs,
        )
        for url in acting.base_urls
    ]
    # only webgym's own servers have a known distribution, and they are up
    policy = BalancedPolicy(chats, settings.rollout, started=acting.logprobs is not None)
    try:
        yield ModelAgent(policy, gate or PolicyGate(acting.served))
    finally:
        await policy.close()
