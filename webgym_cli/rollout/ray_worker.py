"""Ray actor of a multi-node rollout: runs episodes on its node and returns their trajectories."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from webgym_cli.config.load import import_code
from webgym_cli.config.model import Settings
from webgym_cli.config.secrets import add_settings_secrets
from webgym_cli.jobs.ray_cluster import NodeActor
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.plan import PendingEpisode
from webgym_cli.rollout.resources import PolicyEndpoint
from webgym_cli.rollout.runner import open_runner
from webgym_cli.store.run import RunDir
from webgym_cli.util.proxies import exempt_loopback


class RolloutWorker(NodeActor):
    """One actor per node, with its own browsers and policy connections. It writes screenshots, but no trajectories.

    The driver stores a trajectory when the call returns. An actor that dies has therefore stored nothing of its running
    episodes, and they can run elsewhere without duplicates.
    """

    def __init__(self) -> None:
        self._opened = AsyncExitStack()

    async def open(
        self, root: str, settings: Settings, endpoint: PolicyEndpoint, environment: str, secrets: dict[str, str]
    ) -> int:
        """Open agent and environments; return the number of slots. `secrets`: environment variables to set if unset."""
        for name, value in secrets.items():
            os.environ.setdefault(name, value)
        exempt_loopback(os.environ)
        add_settings_secrets(settings)
        import_code(settings)
        opening = open_runner(RunDir(Path(root)), settings, endpoint, environment)
        self._runner = await self._opened.enter_async_context(opening)
        return self._runner.slots

    async def run_episode(self, owed: PendingEpisode) -> tuple[Trajectory | None, dict[str, Any]]:
        """Run one attempt as `LocalRunner.run`; return its trajectory and the status after it."""
        return await self._runner.run(owed), await self.status()

    async def status(self) -> dict[str, Any]:
        """Return timings, running episodes and server counters. Also the driver's liveness check."""
        return self._runner.stages.timings()

    async def stop(self) -> None:
        """Cancel the running episodes; their calls return the steps so far."""
        self._runner.stop()

    async def close(self) -> None:
        """Close the browsers."""
        await self._opened.aclose()
