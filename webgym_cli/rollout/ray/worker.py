"""The Ray actor of a rollout over several nodes: runs episodes on its node and returns their trajectories."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.jobs.ray_cluster import NodeActor
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.plan import PendingEpisode
from webgym_cli.rollout.resources import PolicyEndpoint
from webgym_cli.rollout.runner import LocalRunner, open_runner
from webgym_cli.store.run import RunDir


class RolloutWorker(NodeActor):
    """One actor per node, with its own browsers and policy connections. It writes screenshots, no trajectories.

    The driver stores a trajectory when the call returns. An actor that dies has therefore stored nothing of its running
    episodes, and they can run elsewhere without duplicates.
    """

    def __init__(self) -> None:
        self._runner: LocalRunner | None = None
        self._closing = asyncio.Event()
        self._holder: asyncio.Task[None] | None = None

    async def open(
        self, root: str, settings: Settings, endpoint: PolicyEndpoint, environment: str, secrets: dict[str, str]
    ) -> int:
        """Open agent and environments; return the number of slots. `secrets`: environment variables, where unset."""
        for name, value in secrets.items():
            os.environ.setdefault(name, value)
        ready: asyncio.Future[LocalRunner] = asyncio.get_running_loop().create_future()
        self._holder = asyncio.create_task(self._hold(ready, RunDir(Path(root)), settings, endpoint, environment))
        self._runner = await ready
        return self._runner.slots

    async def run_episode(self, owed: PendingEpisode) -> tuple[Trajectory | None, dict[str, Any]]:
        """Run one attempt, as `EpisodeRunner.run`; return also the status after it."""
        return await self._open_runner.run(owed), await self.status()

    async def status(self) -> dict[str, Any]:
        """Return timings, running episodes and server counters; that it answers is the liveness check."""
        runner = self._open_runner
        with runner.stages.lock:
            return {**runner.stages.to_json(), "servers": runner.servers()}

    async def stop(self) -> None:
        """Cancel the running episodes: their calls return what was done."""
        self._open_runner.stop()

    async def close(self) -> None:
        """Close the browsers."""
        self._closing.set()
        if self._holder is not None:
            await asyncio.wait((self._holder,))

    @property
    def _open_runner(self) -> LocalRunner:
        if self._runner is None:
            raise RuntimeError("this worker has not been opened")
        return self._runner

    async def _hold(self, ready: asyncio.Future[LocalRunner], *opening: Any) -> None:
        # Each actor call is a task of its own, but what a task opens with `async with` it must close itself.
        try:
            async with open_runner(*opening) as runner:
                ready.set_result(runner)
                await self._closing.wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)
