"""What episodes need beside their queue: who acts, environments, a judge. Opened here, or by a rank on its own node."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from webgym_cli.config.model import Settings
from webgym_cli.environments.base import EnvironmentPool
from webgym_cli.environments.registry import make_pool
from webgym_cli.records.base import Record
from webgym_cli.rollout.actors import Actor, ModelActor, OracleActor
from webgym_cli.rollout.judging import TrajectoryJudge
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore

POLICY_KEY = "OPENAI_API_KEY"
"""The environment variable that holds the policy server's key, if it wants one."""


class Acting(Record):
    """Who acts, and where."""

    base_url: str = ""
    """OpenAI base URL of the policy's server; empty: the environment's expert acts."""
    name: str = OracleActor.name
    """Stands in the trajectories as `policy`."""


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


@asynccontextmanager
async def open_actor(run: RunDir, settings: Settings, acting: Acting) -> AsyncIterator[Actor]:
    """Yield who acts, connected to the policy's server where there is one."""
    if not acting.base_url:
        context = settings.context_config
        yield OracleActor(context.interaction_mode, context.prompt_version)
        return
    from webgym_cli.agent.policy import ChatPolicy

    chat = ChatPolicy(
        acting.base_url,
        settings.serve.served_model_name,
        settings.policy_config,
        settings.rollout,
        ScreenshotStore(run.screenshots).get,
        name=acting.name,
        api_key=os.environ.get(POLICY_KEY, ""),
    )
    try:
        yield ModelActor(chat)
    finally:
        await chat.close()


@asynccontextmanager
async def open_pool(settings: Settings, environment: str) -> AsyncIterator[EnvironmentPool | None]:
    """Yield a started pool of environments of this name; None where the name is empty."""
    if not environment:
        yield None
        return
    async with make_pool(settings, environment) as pool:
        yield pool
