"""Ray actor of a multi-node rollout: runs episodes on its node and returns their trajectories."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from webgym_cli.config.model import Settings
from webgym_cli.config.secrets import add_settings_secrets
from webgym_cli.errors import JobError
from webgym_cli.jobs.ray_cluster import NodeActor
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.plan import PendingEpisode
from webgym_cli.rollout.resources import PolicyEndpoint
from webgym_cli.rollout.runner import LocalRunner, open_runner
from webgym_cli.store.run import RunDir
from webgym_cli.util.proxies import exempt_loopback

T = TypeVar("T")


class NodeServers(Protocol):
    """Policy servers on a node, used only by its worker."""

    @property
    def base_urls(self) -> tuple[str, ...]:
        """OpenAI-compatible base URLs."""
        ...

    async def watch(self) -> None:
        """Wait while a server runs. Raises `JobError` when the last one has died."""
        ...


# Serves the policy in this process; the argument is the worker's number.
ServeFn = Callable[[int], AbstractAsyncContextManager[NodeServers]]


class RolloutWorker(NodeActor):
    """One actor per node, with its own browsers and policy connections. It writes screenshots, but no trajectories.

    The driver stores a trajectory when the call returns. An actor that dies has therefore stored nothing of its running
    episodes, and they can run elsewhere without duplicates.
    """

    _runner: LocalRunner
    """Set by `open`."""

    def __init__(self) -> None:
        self._own_urls: tuple[str, ...] = ()
        self._watching: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._holders: list[asyncio.Task[None]] = []

    async def serve(self, serve: ServeFn, number: int) -> None:
        """Start policy servers on the GPUs that Ray assigned to this process; its episodes use only these."""
        servers = await self._enter(serve(number))
        self._own_urls = servers.base_urls
        self._watching = asyncio.create_task(servers.watch())

    async def open(
        self, root: str, settings: Settings, endpoint: PolicyEndpoint, environment: str, secrets: dict[str, str]
    ) -> int:
        """Open agent and environments; return the number of slots. `secrets`: environment variables to set if unset."""
        for name, value in secrets.items():
            os.environ.setdefault(name, value)
        exempt_loopback(os.environ)
        add_settings_secrets(settings)
        if self._own_urls:  # they serve merged weights, so requests must not name an adapter
            endpoint = endpoint.model_copy(
                update={"base_urls": self._own_urls, "served": replace(endpoint.served, model="")}
            )
        self._runner = await self._enter(open_runner(RunDir(Path(root)), settings, endpoint, environment))
        return self._runner.slots

    async def run_episode(self, owed: PendingEpisode) -> tuple[Trajectory | None, dict[str, Any]]:
        """Run one attempt as `EpisodeRunner.run`; return its trajectory and the status after it."""
        return await self._runner.run(owed), self._status()

    async def status(self) -> dict[str, Any]:
        """Return timings, running episodes and server counters. Raises `JobError` if its own servers have died.

        Also the driver's liveness check.
        """
        if self._watching is not None and self._watching.done() and (error := self._watching.exception()):
            raise JobError(f"its policy servers are gone: {error}")
        return self._status()

    async def stop(self) -> None:
        """Cancel the running episodes; their calls return the steps so far."""
        self._runner.stop()

    async def close(self) -> None:
        """Close browsers and servers."""
        if self._watching is not None:
            self._watching.cancel()
        self._closing.set()
        if self._holders:
            await asyncio.wait(self._holders)

    def _status(self) -> dict[str, Any]:
        with self._runner.stages.lock:
            return {**self._runner.stages.to_json(), "servers": self._runner.servers()}

    async def _enter(self, manager: AbstractAsyncContextManager[T]) -> T:
        """Enter a context manager and keep it open until `close`.

        A task holds it, because each actor call runs in its own task and a context must be exited where it was entered.
        """
        ready: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def hold() -> None:
            try:
                async with manager as opened:
                    ready.set_result(opened)
                    await self._closing.wait()
            except Exception as error:
                if ready.done():
                    raise
                ready.set_exception(error)

        self._holders.append(asyncio.create_task(hold()))
        return await ready
