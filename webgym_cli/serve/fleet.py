"""Our servers: one, or several replicas that share the requests, on this machine and on other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from webgym_cli.errors import JobError, WebGymError
from webgym_cli.jobs.gpu import Nvml
from webgym_cli.jobs.workers import gather_or_cancel
from webgym_cli.records.events import EventSink, ServerEvent
from webgym_cli.serve.execute import PolicyServer
from webgym_cli.serve.plan import ServerPlan
from webgym_cli.serve.weights import Digests
from webgym_cli.util.text import hide_passwords

if TYPE_CHECKING:
    from webgym_cli.serve.remote_server import RemoteServer


# A server of a fleet, here or on another node.
Replica: TypeAlias = "PolicyServer | RemoteServer"


class Fleet:
    """All servers of a policy, with the same weights each. What is said of one holds for all, at the same time.

    `serve` weights and let them `rest` as often as needed, `watch` them in between, and `stop` them at the end. They
    never outlive this process.
    """

    def __init__(
        self,
        plans: Sequence[ServerPlan],
        logs: Path,
        sink: EventSink,
        *,
        restarts: int = 0,
        nvml: Nvml | None = None,
        others: Sequence[Replica] = (),
        digests: Digests | None = None,
    ) -> None:
        """Start nothing. `restarts`: how often `watch` starts a dead replica again while others serve.

        `others`: servers of other nodes, which leave their GPUs to no training; `digests`: shared with them.
        """
        self.digests = digests or Digests()
        self.servers = [PolicyServer(plan, logs, sink, digests=self.digests, nvml=nvml) for plan in plans]
        """Those of this machine, one a plan."""
        self.others = tuple(others)
        self._replicas: tuple[Replica, ...] = (*self.servers, *self.others)
        self._sink = sink
        self._restarts = restarts
        self._up: set[int] = set()
        self._dead: list[Replica] = []
        """Of those that died, the one of which something may be left."""

    @property
    def base_urls(self) -> tuple[str, ...]:
        """OpenAI base URLs; the ports are known from the start on."""
        return tuple(server.base_url for server in self._replicas)

    async def serve(self, model: str, adapters: Mapping[str, str] = MappingProxyType({})) -> None:
        """Serve these weights and LoRA adapters with every replica. Raises as `PolicyServer.serve`; then none runs."""
        try:
            while self._dead:
                await self._dead.pop().stop()
            await gather_or_cancel(*(server.serve(model, adapters) for server in self._replicas))
        # All or none: a policy with fewer servers than planned would silently be slower.
        except BaseException:
            await self.stop()
            raise

    async def add_adapter(self, name: str, folder: str) -> bool:
        """Serve a LoRA adapter beside what is served, while requests go on; return whether all replicas do."""
        return not any(await gather_or_cancel(*(server.add_adapter(name, folder) for server in self._replicas)))

    async def drop_adapters(self, kept: Collection[str]) -> None:
        """Serve other LoRA adapters than these no longer."""
        await gather_or_cancel(*(server.drop_adapters(kept) for server in self._replicas))

    async def release_gpus(self) -> None:
        """Make room for a training on this machine."""
        await gather_or_cancel(*(server.release_gpus() for server in self.servers))

    async def watch(self) -> None:
        """Wait for as long as one serves. Of several, those that die are started again with the current weights.

        Raises `JobError` when the last one has died. Those that make room for a training are not watched.
        """
        serving = [number for number, server in enumerate(self._replicas) if server.is_serving]
        self._up = set(serving)
        await gather_or_cancel(*(self._supervise(number) for number in serving))

    async def stop(self) -> None:
        """Stop all servers and all their processes. Safe to call again."""
        await asyncio.gather(*(server.stop() for server in self._replicas))

    async def _supervise(self, number: int) -> None:
        """Watch one replica, and start it again as often as that is allowed."""
        server, left = self._replicas[number], self._restarts
        while True:
            try:
                await server.watch()
                return
            # Handled below: the other replicas keep serving while this one is restarted.
            except JobError as error:
                died = error
            self._up.discard(number)
            if not self._up:
                self._dead.append(server)
                raise died  # at once: those who asked it fail already, and this is why
            await server.stop()  # what is left of it
            self._tell(server, died, again=left > 0)
            if not left or not await self._revive(server):
                return
            left -= 1
            self._up.add(number)

    async def _revive(self, server: Replica) -> bool:
        """Start a dead replica at its old address, where those look for it that ask it."""
        address = server.base_url
        try:
            await server.start()
            if server.base_url != address:
                await server.stop()
                raise JobError(f"{hide_passwords(address)} is in use")
        except WebGymError as error:
            self._tell(server, error, again=False)
            return False
        return True

    def _tell(self, server: Replica, error: WebGymError, *, again: bool) -> None:
        url = hide_passwords(server.base_url)
        left_out = f"policy server {url}: it is left out until the next weights: {error}"
        message = f"policy server {url}: it is started again: {error}" if again else left_out
        self._sink(ServerEvent(event="replica", url=url, again=again, reason=str(error), message=message))
