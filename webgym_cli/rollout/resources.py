"""What episodes need beside their queue: who acts, environments, a judge. Opened here, or by a rank on its own node."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from webgym_cli.config.model import Settings
from webgym_cli.environments.base import EnvironmentPool
from webgym_cli.environments.registry import make_pool
from webgym_cli.errors import UsageError
from webgym_cli.records.base import Record
from webgym_cli.records.sampling import Logprobs
from webgym_cli.rollout.agents import Actor, ModelActor, OracleActor
from webgym_cli.rollout.judging import TrajectoryJudge
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore

if TYPE_CHECKING:
    from webgym_cli.agent.load_balancer import BalancedPolicy
    from webgym_cli.agent.policy import ChatPolicy

ORACLE, VLLM = OracleActor.name, "vllm"
"""What `rollout.policy` may be beside base URLs: the environment's expert, our own server."""
_CHOICES = "--policy vllm, --policy oracle or --policy http://HOST:PORT/v1[,http://HOST:PORT/v1...]"
POLICY_KEY = "OPENAI_API_KEY"
"""The environment variable that holds the policy servers' key, if they want one."""


class Acting(Record):
    """Who acts, and where."""

    base_urls: tuple[str, ...] = ()
    """OpenAI base URLs of the policy's servers, which share the requests; none: the environment's expert acts."""
    name: str = ORACLE
    """Stands in the trajectories as `policy`."""
    logprobs: Logprobs | None = None
    """What the servers' log-probabilities are of; None: the servers are not ours, so it is not known."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What one engine works with."""

    actor: Actor
    pool: EnvironmentPool | None
    """None: there is nothing to run."""
    judge: TrajectoryJudge | None
    """None: the settings name no judge."""


Opener = Callable[[RunDir, Settings, Acting, str], AbstractAsyncContextManager[Parts]]
"""Opens the parts of one engine, given the environment's name (empty: no pool), and closes them."""


def policy_urls(policy: str) -> tuple[str, ...]:
    """Return the base URLs that `rollout.policy` or `--policy` names, one or several with commas between.

    Raises `UsageError` where one is none, or is named twice.
    """
    urls = tuple(url.strip() for url in policy.split(","))
    places: set[str] = set()
    for url in urls:
        place = _place(url, alone=len(urls) == 1)
        if place in places:
            raise UsageError(f"rollout.policy: {place} is named twice", hint="name each server once")
        places.add(place)
    return urls


def _place(url: str, *, alone: bool) -> str:
    """Return what two URLs of the same server share: host, port and path, without a password."""
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


@asynccontextmanager
async def open_actor(run: RunDir, settings: Settings, acting: Acting) -> AsyncIterator[Actor]:
    """Yield who acts, connected to the policy's servers where there are any."""
    if not acting.base_urls:
        context = settings.context_config
        yield OracleActor(context.interaction_mode, context.prompt_version)
        return
    policy = _policy(run, settings, acting)
    try:
        yield ModelActor(policy)
    finally:
        await policy.close()


def _policy(run: RunDir, settings: Settings, acting: Acting) -> ChatPolicy | BalancedPolicy:
    from webgym_cli.agent.chat_request import EncodedImages
    from webgym_cli.agent.load_balancer import BalancedPolicy
    from webgym_cli.agent.policy import ChatPolicy

    several = len(acting.base_urls) > 1
    # Of several servers, another one repeats what one failed; and an image is encoded once for all of them.
    limits = settings.rollout.model_copy(update={"policy_retries": 0}) if several else settings.rollout
    images = EncodedImages(ScreenshotStore(run.screenshots).get)
    chats = [
        ChatPolicy(
            url,
            settings.serve.served_model_name,
            settings.policy_config,
            limits,
            images,
            name=acting.name,
            api_key=os.environ.get(POLICY_KEY, ""),
            logprobs=acting.logprobs,
        )
        for url in acting.base_urls
    ]
    return BalancedPolicy(chats, settings.rollout) if several else chats[0]


@asynccontextmanager
async def open_pool(settings: Settings, environment: str) -> AsyncIterator[EnvironmentPool | None]:
    """Yield a started pool of environments of this name; None where the name is empty."""
    if not environment:
        yield None
        return
    async with make_pool(settings, environment) as pool:
        yield pool
