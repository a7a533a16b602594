"""Replicas of the policy server that share the requests, on this machine and on other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from webgym_cli.errors import JobError, WebGymError
from webgym_cli.jobs.gpu import Nvml
from webgym_cli.jobs.workers import gather_or_cancel, task_group
from webgym_cli.records.events import EventSink, ServerEvent
from webgym_cli.serve.execute import PolicyServer
from webgym_cli.serve.plan import ServerPlan
from webgym_cli.serve.weights import Digests
from webgym_cli.util.text import hide_passwords

if TYPE_CHECKING:
    from webgym_cli.serve.remote_server import RemoteServer


Replica: TypeAlias = "PolicyServer | RemoteServer"


@dataclass(eq=False)
class Fleet:
    """All replicas of a policy, with the same weights. Operations apply to all replicas concurrently.

    Call `serve` and `release_gpus` as often as needed, `watch` in between, and `stop` at the end. The servers never
    outlive this process.
    """

    plans: Sequence[ServerPlan]
    logs: Path
    sink: EventSink
    restarts: int = 0
    """Limit of restarts of a dead replica by `watch`."""
    nvml: Nvml | None = None
    others: tuple[RemoteServer, ...] = ()
    """Servers of other nodes."""
    digests: Digests = field(default_factory=Digests)
    """Shared with the servers of other nodes."""
    may_shrink: bool = False
    """Whether `serve` leaves out the servers whose node the cluster has lost."""
    servers: list[PolicyServer] = field(init=False)
    """Servers of this machine, one per plan."""
    _watched: set[int] = field(default_factory=set)
    """Numbers of the replicas that serve, or are being restarted."""

    def __post_init__(self) -> None:
        """Create the replicas without starting them."""
        self.servers = [PolicyServer(plan, self.logs, self.sink, self.digests, self.nvml) for plan in self.plans]

    @property
    def _replicas(self) -> tuple[Replica, ...]:
        return (*self.servers, *self.others)

    @property
    def base_urls(self) -> tuple[str, ...]:
        """OpenAI-compatible base URLs; known before the servers start."""
        return tuple(server.base_url for server in self._replicas)

    async def serve(self, model: str, adapters: Mapping[str, str] = MappingProxyType({})) -> None:
        """Serve weights and LoRA adapters on every replica.

        Raises the errors of `PolicyServer.serve`, after stopping all replicas.
        """
        try:
            ours = [server.serve(model, adapters) for server in self.servers]
            await gather_or_cancel(*ours, *(self._serve_other(server, model, adapters) for server in self.others))
        # All or none: a policy with fewer servers than planned would silently be slower.
        except BaseException:
            await self.stop()
            raise

    async def _serve_other(self, server: RemoteServer, model: str, adapters: Mapping[str, str]) -> None:
        try:
            await server.serve(model, adapters)
        except JobError as error:
            if not self.may_shrink or not await server.is_node_gone():
                raise
            await server.stop()
            self.others = tuple(other for other in self.others if other is not server)
            message = f"{error}; its node is gone, the other nodes serve without it"
            url = hide_passwords(server.base_url)
            self.sink(ServerEvent(event="replica", url=url, again=False, reason=str(error), message=message))

    async def add_adapter(self, name: str, folder: str) -> bool:
        """Load a LoRA adapter without pausing requests; return whether all replicas serve it."""
        return not any(await gather_or_cancel(*(server.add_adapter(name, folder) for server in self._replicas)))

    async def drop_adapters(self, kept: Collection[str]) -> None:
        """Unload all LoRA adapters except `kept`."""
        await gather_or_cancel(*(server.drop_adapters(kept) for server in self._replicas))

    async def release_gpus(self, *, everywhere: bool = False) -> None:
        """Release the GPUs of this machine's servers for training; `everywhere`: stop those of other nodes, too."""
        await gather_or_cancel(*(server.release_gpus() for server in self.servers))
        await asyncio.gather(*(server.stop() for server in self.others if everywhere))

    async def renew_others(self, planned: Sequence[RemoteServer]) -> None:
        """Replace the servers of other nodes; those that are planned again keep running."""
        present = {(server.node, server.logs): server for server in self.others}
        self.others = tuple(present.pop((server.node, server.logs), server) for server in planned)
        await asyncio.gather(*(server.stop() for server in present.values()))

    async def watch(self) -> None:
        """Wait while a replica serves. A replica that dies or hangs is restarted with the current weights.

        Raises `JobError` when the last one has used up its restarts. Replicas that released their GPUs are not watched.
        """
        serving = [number for number, server in enumerate(self._replicas) if server.is_serving]
        self._watched = set(serving)
        await gather_or_cancel(*(self._supervise(number) for number in serving))

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Watch within the block. When the last replica is lost, cancel the block and raise `JobError`."""
        async with task_group() as group:
            watching = group.create_task(self.watch())
            yield
            watching.cancel()

    async def stop(self) -> None:
        """Stop all servers and their processes. Idempotent."""
        await asyncio.gather(*(server.stop() for server in self._replicas))

    async def _supervise(self, number: int) -> None:
        """Watch one replica and restart it up to `restarts` times."""
        server, left = self._replicas[number], self.restarts
        while True:
            try:
                await server.watch()
                return
            # Handled below: the other replicas keep serving while this one is restarted.
            except JobError as error:
                died = error
            await server.stop()  # ends its remaining processes
            if not left and self._watched == {number}:
                raise died
            self._report_failure(server, died, again=left > 0)
            if not left or not await self._revive(server):
                self._watched.discard(number)
                if not self._watched:
                    raise died
                return
            left -= 1

    async def _revive(self, server: Replica) -> bool:
        """Restart a dead replica at its old address, which its clients keep; return whether it serves."""
        address = server.base_url
        try:
            await server.start()
            if server.base_url != address:
                await server.stop()
                raise JobError(f"{hide_passwords(address)} is in use")
        except WebGymError as error:
            self._report_failure(server, error, again=False)
            return False
        return True

    def _report_failure(self, server: Replica, error: WebGymError, *, again: bool) -> None:
        url = hide_passwords(server.base_url)
        left_out = f"policy server {url}: it is left out until the next weights: {error}"
        message = f"policy server {url}: it is started again: {error}" if again else left_out
        self.sink(ServerEvent(event="replica", url=url, again=again, reason=str(error), message=message))
