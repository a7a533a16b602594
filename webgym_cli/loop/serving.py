"""The server of the run's current policy, over the stages: up for rollouts, out of the trainer's way."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path

from webgym_cli.config.model import Settings
from webgym_cli.records.events import EventSink
from webgym_cli.roles.locate import resolve_device, role_python
from webgym_cli.serve.execute import PolicyServer
from webgym_cli.serve.plan import plan_server
from webgym_cli.store.checkpoints import policy_path
from webgym_cli.store.run import RunDir


@dataclass(slots=True)
class Serving:
    """Our own vLLM server, started when it is first needed."""

    run: RunDir
    settings: Settings
    logs: Path
    """Where `vllm.log` goes."""
    sink: EventSink
    _server: PolicyServer | None = field(default=None)

    async def current(self) -> str:
        """Serve the current policy: start the server, or give a running one the new weights. Return its base URL."""
        model = policy_path(self.run, self.settings)
        weights = str(model.resolve() if model.is_dir() else model)
        if self._server is None:
            python, device = role_python(self.settings, "serve"), resolve_device(self.settings.roles.device)
            self._server = PolicyServer(plan_server(self.settings, weights, python, device), self.logs, self.sink)
            await self._server.start()
        elif weights != self._server.model:
            await self._server.swap(weights)
        return self._server.base_url

    def watch(self) -> Awaitable[None] | None:
        """Return what waits for as long as the server runs and raises when it dies; None where none runs."""
        return self._server.watch() if self._server else None

    async def make_room(self) -> None:
        """Give the GPU to the trainer: both don't fit into its memory. On a CPU the server stays up."""
        if resolve_device(self.settings.roles.device) == "cuda":
            await self.stop()

    async def stop(self) -> None:
        """Stop the server, if it runs."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop()
