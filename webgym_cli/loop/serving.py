"""The servers of the run's current policy, over the stages: up for rollouts, out of the trainer's way."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path

from webgym_cli.config.model import Settings
from webgym_cli.jobs.gpu import open_nvml
from webgym_cli.records.events import Event, EventSink
from webgym_cli.records.sampling import PolicyVersion
from webgym_cli.serve.fleet import Fleet
from webgym_cli.serve.plan import plan_servers
from webgym_cli.store.checkpoints import policy_path, version
from webgym_cli.store.metrics import append_event
from webgym_cli.store.run import RunDir
from webgym_cli.venvs.locate import resolve_device, role_python

# Events of the servers that the run's metrics keep, those of them that tell `seconds`: the report counts idle GPUs.
TIMED = ("serve", "swap", "sleep", "wake", "stop")


@dataclass(slots=True)
class Serving:
    """Our own vLLM servers, started when they are first needed."""

    run: RunDir
    settings: Settings
    logs: Path
    """Where `vllm.log` goes."""
    sink: EventSink
    version: PolicyVersion | None = None
    """What is served, once it is."""
    _fleet: Fleet | None = field(default=None)

    async def current(self) -> tuple[str, ...]:
        """Serve the current policy, by a start, a waking or new weights. Return the servers' base URLs."""
        model = policy_path(self.run, self.settings)
        weights = str(model.resolve() if model.is_dir() else model)
        if self._fleet is None:
            python, device = role_python(self.settings, "serve"), resolve_device(self.settings.venvs.device)
            plans = plan_servers(self.settings, weights, python, device, phases=True)
            nvml = open_nvml() if device == "cuda" else None
            self._fleet = Fleet(plans, self.logs, self._note, restarts=self.settings.serve.restarts, nvml=nvml)
        await self._fleet.serve(weights)
        self.version = PolicyVersion(number=version(self.run), digest=await self._fleet.digests.of(weights))
        return self._fleet.base_urls

    @property
    def base_urls(self) -> tuple[str, ...]:
        """OpenAI base URLs of the servers; none before they were first needed."""
        return self._fleet.base_urls if self._fleet else ()

    @property
    def yields_gpus(self) -> bool:
        """Whether a training takes the servers' GPUs."""
        return self._fleet is not None and any(server.plan.sleep.action != "keep" for server in self._fleet.servers)

    def watch(self) -> Awaitable[None] | None:
        """Return what waits for as long as a server runs and raises when the last one dies; None where none runs."""
        return self._fleet.watch() if self._fleet else None

    async def release_gpus(self) -> None:
        """Give the GPUs to the trainer, as `serve.during_training` says."""
        if self._fleet is not None:
            await self._fleet.release_gpus()

    async def stop(self) -> None:
        """Stop the servers, if they run."""
        if self._fleet is not None:
            fleet, self._fleet = self._fleet, None
            await fleet.stop()

    def _note(self, event: Event) -> None:
        """Show an event, and keep it where it tells how long the servers were no use to anyone."""
        if event["event"] in TIMED and "seconds" in event:
            append_event(self.run, event)
        self.sink(event)
