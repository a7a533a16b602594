"""The servers of the run's current policy, over the stages: up for rollouts, out of the trainer's way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from webgym_cli.agent.gate import ServedPolicy
from webgym_cli.config.model import Settings
from webgym_cli.jobs.gpu import open_nvml
from webgym_cli.records.events import Event, EventSink
from webgym_cli.records.sampling import PolicyVersion
from webgym_cli.serve.fleet import Fleet
from webgym_cli.serve.plan import plan_servers
from webgym_cli.serve.weights import Digests
from webgym_cli.store.adapters import find_adapter, is_plain_adapter
from webgym_cli.store.checkpoints import current, locate_model, policy_name, policy_path, version
from webgym_cli.store.metrics import append_event
from webgym_cli.store.run import RunDir
from webgym_cli.train.registry import current_backend
from webgym_cli.util.text import hide_passwords
from webgym_cli.venvs.locate import resolve_device, role_python

if TYPE_CHECKING:
    from webgym_cli.jobs.ray_cluster import RayCluster
    from webgym_cli.serve.remote_server import RemoteServer

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
    policy: ServedPolicy = field(default_factory=ServedPolicy)
    """What is served, once it is."""
    _fleet: Fleet | None = field(default=None)
    _cluster: RayCluster | None = field(default=None)
    """Whose other nodes serve, too."""

    @asynccontextmanager
    async def on_nodes(self) -> AsyncIterator[None]:
        """Have every node of the Ray cluster that offers GPUs serve, for the time of the block."""
        from webgym_cli.jobs.ray_cluster import open_cluster

        await self.stop()
        async with open_cluster(self.settings.rollout) as self._cluster:
            try:
                yield
            finally:
                await self.stop()
                self._cluster = None

    async def current(self) -> tuple[str, ...]:
        """Serve the current policy, by a start, a waking, new weights or an adapter. Return the servers' base URLs."""
        fleet = self._fleet or self._plan_fleet()
        self._fleet = fleet
        model, adapters = self._find_model(fleet)
        await fleet.serve(model, adapters)
        await self._note_served(fleet, adapters)
        await fleet.drop_adapters(adapters)
        return fleet.base_urls

    async def serve_beside(self) -> bool:
        """Serve the current policy beside the one before, while requests go on; return whether that could be.

        It can where the policy is a LoRA adapter on the weights that are served.
        """
        fleet = self._fleet
        if fleet is None:
            return False
        model, adapters = self._find_model(fleet)
        if model != fleet.servers[0].model or not adapters:
            return False
        ((name, folder),) = adapters.items()
        if not await fleet.add_adapter(name, folder):
            return False
        await self._note_served(fleet, adapters)
        return True

    async def drop_adapters(self, kept: Collection[str]) -> None:
        """Serve adapters of other names no longer."""
        if self._fleet is not None:
            await self._fleet.drop_adapters(kept)

    def _plan_fleet(self) -> Fleet:
        python, device = role_python(self.settings, "serve"), resolve_device(self.settings.venvs.device)
        rank = find_lora_rank(self.run, self.settings)
        plans = plan_servers(self.settings, self.weights, python, device, phases=True, lora_rank=rank)
        nvml, digests = open_nvml() if device == "cuda" else None, Digests()
        others = self._plan_others(plans[0].lora_rank, digests)
        restarts = self.settings.serve.restarts
        return Fleet(plans, self.logs, self._note, restarts=restarts, nvml=nvml, others=others, digests=digests)

    def _plan_others(self, lora_rank: int, digests: Digests) -> Sequence[RemoteServer]:
        """Return the servers of other nodes, which serve adapters by name only where those of this one do."""
        if self._cluster is None:
            return ()
        from webgym_cli.serve.remote_server import plan_remote_servers

        opening = self.settings, self.logs, lora_rank
        others = tuple(plan_remote_servers(self._cluster, self.run.root, opening, self.sink, digests))
        if not others:
            message = "no other node of the Ray cluster offers GPUs enough for a policy server: this one serves alone"
            self.sink({"event": "note", "message": message})
        return others

    def _find_model(self, fleet: Fleet) -> tuple[str, dict[str, str]]:
        """Return the model that is served for the current policy, and the LoRA adapters on it by their names."""
        newest, on_model = current(self.run), find_adapter(self.run, self.settings)
        if newest is None or newest.adapter is None or on_model is None:
            return self.weights, {}
        model, folder = on_model
        if newest.adapter.rank > fleet.servers[0].plan.lora_rank or not is_plain_adapter(folder):
            return self.weights, {}
        return model, {f"{self.settings.serve.served_model_name}-v{newest.version}": str(folder)}

    async def _note_served(self, fleet: Fleet, adapters: Collection[str]) -> None:
        """Note what is served. The digest is that of the checkpoint's weights, which an adapter is merged into."""
        number, name = version(self.run), policy_name(self.run, self.settings)
        digest = await fleet.digests.of(self.weights)
        self.policy = ServedPolicy(PolicyVersion(number=number, digest=digest), name, next(iter(adapters), ""))

    @property
    def weights(self) -> str:
        """The current policy as one model, an adapter merged: its folder or hub id."""
        return locate_model(policy_path(self.run, self.settings))

    @property
    def base_urls(self) -> tuple[str, ...]:
        """OpenAI base URLs of the servers; none before they were first needed."""
        return self._fleet.base_urls if self._fleet else ()

    @property
    def other_addresses(self) -> tuple[str, ...]:
        """Base URLs, without passwords, of the servers of other nodes that run now."""
        others = self._fleet.others if self._fleet else ()
        return tuple(hide_passwords(server.base_url) for server in others if server.is_serving)

    @property
    def yields_gpus(self) -> bool:
        """Whether a training takes the GPUs of this node's servers."""
        return self._fleet is not None and any(server.plan.sleep.action != "keep" for server in self._fleet.servers)

    async def watch(self) -> None:
        """Wait for as long as a server runs, where one does. Raises `JobError` when the last one dies."""
        if self._fleet is not None:
            await self._fleet.watch()

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


def find_lora_rank(run: RunDir, settings: Settings) -> int:
    """Return the rank of the adapters that trainings will make and vLLM can serve by their names; 0: none.

    Not with the vision tower, of which vLLM applies no adapter; nor where each training begins with a new adapter.
    """
    data, model = current_backend(run, settings).data, settings.rl.model
    if data == "dataset":
        imitation = settings.algorithm_config
        trains = imitation.finetuning_type == "lora" and imitation.freeze_vision_tower
        return imitation.lora_rank if trains else 0
    return model.lora_rank if data == "batch" and model.freeze_vision_tower else 0
