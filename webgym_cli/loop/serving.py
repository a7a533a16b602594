"""Lifecycle of the policy servers across stages: serve during rollouts, release GPUs during training."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from webgym_cli.agent.client.gate import ServedPolicy
from webgym_cli.config.model import Settings
from webgym_cli.jobs.gpu import open_nvml
from webgym_cli.records.events import Event, EventSink
from webgym_cli.records.sampling import PolicyVersion
from webgym_cli.serve.execute import AdapterError
from webgym_cli.serve.fleet import Fleet
from webgym_cli.serve.plan import plan_servers
from webgym_cli.serve.weights import Digests
from webgym_cli.store.adapters import find_adapter, is_plain_adapter
from webgym_cli.store.checkpoints import current, locate_model, policy_name, policy_path, version
from webgym_cli.store.metrics import append_event
from webgym_cli.store.run import RunDir
from webgym_cli.train.registry import current_backend, find_backend
from webgym_cli.util.text import hide_passwords
from webgym_cli.venvs.locate import resolve_device, role_python

if TYPE_CHECKING:
    from webgym_cli.jobs.ray_cluster import RayCluster
    from webgym_cli.serve.remote_server import RemoteServer

# Server events with `seconds` that go into the run's metrics: the report computes idle GPU time from them.
TIMED = ("serve", "swap", "sleep", "wake", "stop")


@dataclass(slots=True)
class Serving:
    """webgym's own vLLM servers, started on first use."""

    run: RunDir
    settings: Settings
    logs: Path
    """Folder of `vllm.log`."""
    sink: EventSink
    policy: ServedPolicy = field(default_factory=ServedPolicy)
    """Policy that is currently served."""
    _fleet: Fleet | None = field(default=None)
    _refused: set[str] = field(default_factory=set)
    """Adapters that do nothing on these servers."""
    _cluster: RayCluster | None = field(default=None)
    """Ray cluster whose other nodes also serve (`rollout.executor=ray`)."""
    _connection: ExitStack = field(default_factory=ExitStack)

    async def connect(self) -> RayCluster:
        """Return the Ray cluster, connected until `stop`. The nodes that it has now serve from the next rollout on."""
        from webgym_cli.jobs.ray_cluster import open_cluster

        if self._cluster is None:
            self._cluster = self._connection.enter_context(open_cluster(self.settings.rollout))
        elif self._fleet is not None:
            await self._fleet.renew_others(
                self._plan_others(self._fleet.servers[0].plan.lora_rank, self._fleet.digests)
            )
        return self._cluster

    async def current(self) -> tuple[str, ...]:
        """Serve the current policy and return the servers' base URLs.

        Starts or wakes the servers, swaps their weights or adds a LoRA adapter, whichever is needed.
        """
        if self._cluster is None and self.settings.rollout.executor == "ray":
            await self.connect()
        fleet = self._fleet or self._plan_fleet()
        self._fleet = fleet
        model, adapters = self._find_model(fleet)
        try:
            await fleet.serve(model, adapters)
        except AdapterError as error:
            self.sink({"event": "note", "message": f"{error}: the merged weights are served"})
            self._refused |= adapters.keys()
            model, adapters = self.weights, {}
            await fleet.serve(model)
        await self._note_served(fleet, adapters)
        await fleet.drop_adapters(adapters)
        return fleet.base_urls

    async def serve_beside(self) -> bool:
        """Serve the current policy alongside the previous one without pausing requests; return whether it succeeded.

        It succeeds only if the policy is a LoRA adapter on the served weights.
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
        """Unload all adapters except `kept`."""
        if self._fleet is not None:
            await self._fleet.drop_adapters(kept)

    def _plan_fleet(self) -> Fleet:
        python, device = role_python(self.settings, "serve"), resolve_device(self.settings.venvs.device)
        # of demonstrations, and of what trains after them: a server that keeps running must take both
        backends = current_backend(self.run, self.settings), find_backend(self.settings.train.algorithm)
        rank = max(backend.adapter_rank(self.settings) for backend in backends)
        plans = plan_servers(self.settings, self.weights, python, device, phases=True, lora_rank=rank)
        nvml, digests = open_nvml(device), Digests()
        others = self._plan_others(plans[0].lora_rank, digests)
        return Fleet(
            plans,
            self.logs,
            self._note,
            restarts=self.settings.serve.restarts,
            nvml=nvml,
            others=others,
            digests=digests,
            # An asynchronous loop's requests know the servers of its start.
            may_shrink=self.settings.loop.mode == "sync",
        )

    def _plan_others(self, lora_rank: int, digests: Digests) -> tuple[RemoteServer, ...]:
        """Plan the servers of the other nodes, with the same LoRA rank as on this node."""
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
        """Return the model to serve for the current policy, and its LoRA adapter folders by name."""
        newest, on_model = current(self.run), find_adapter(self.run, self.settings)
        if newest is None or newest.adapter is None or on_model is None:
            return self.weights, {}
        model, folder = on_model
        # vLLM would leave out the vision tower's part of an adapter without a word
        fits = not newest.adapter.vision and newest.adapter.rank <= fleet.servers[0].plan.lora_rank
        if not (fits and is_plain_adapter(folder)):
            return self.weights, {}
        name = f"{self.settings.serve.served_model_name}-v{newest.version}"
        return (self.weights, {}) if name in self._refused else (model, {name: str(folder)})

    async def _note_served(self, fleet: Fleet, adapters: Collection[str]) -> None:
        """Record the served policy. The digest is of the checkpoint's weights, with the adapter merged."""
        number, name = version(self.run), policy_name(self.run, self.settings)
        digest = await fleet.digests.of(self.weights)
        self.policy = ServedPolicy(PolicyVersion(number=number, digest=digest), name, next(iter(adapters), ""))

    @property
    def weights(self) -> str:
        """The current policy as one model, an adapter merged: its folder or hub id."""
        return locate_model(policy_path(self.run, self.settings))

    @property
    def base_urls(self) -> tuple[str, ...]:
        """OpenAI-compatible base URLs of the servers; empty before their first use."""
        return self._fleet.base_urls if self._fleet else ()

    @asynccontextmanager
    async def forwarded_urls(self, address: str) -> AsyncIterator[tuple[str, ...]]:
        """Yield the base URLs for clients on other machines, which reach this one at `address`, within the block."""
        from webgym_cli.serve.forwarder import PolicyForwarder

        forwarders = [
            PolicyForwarder(partial(str, server.base_url)) for server in (self._fleet.servers if self._fleet else ())
        ]
        async with AsyncExitStack() as stack:
            for forwarder in forwarders:
                stack.push_async_callback(forwarder.close)
            urls = [await forwarder.open(address) for forwarder in forwarders]
            yield (*urls, *self.base_urls[len(urls) :])

    @property
    def other_addresses(self) -> tuple[str, ...]:
        """Base URLs, without passwords, of the running servers on other nodes."""
        others = self._fleet.others if self._fleet else ()
        return tuple(hide_passwords(server.base_url) for server in others if server.is_serving)

    @property
    def yields_gpus(self) -> bool:
        """Whether this node's servers release their GPUs during training."""
        return self._fleet is not None and any(server.plan.sleep.action != "keep" for server in self._fleet.servers)

    async def watch(self) -> None:
        """Wait while servers run; return at once if none was started. Raises `JobError` when the last one dies."""
        if self._fleet is not None:
            await self._fleet.watch()

    async def release_gpus(self) -> None:
        """Release the GPUs for the trainer, by the policy of `serve.during_training`."""
        if self._fleet is not None:
            # Ray gives a node's GPUs to one actor at a time: a training there waits for those of the servers.
            await self._fleet.release_gpus(everywhere=self.settings.train.executor == "ray")

    async def stop(self) -> None:
        """Stop the servers, if they run, and disconnect from the Ray cluster."""
        try:
            if self._fleet is not None:
                fleet, self._fleet = self._fleet, None
                await fleet.stop()
        finally:
            self._cluster = None
            self._connection.close()

    def _note(self, event: Event) -> None:
        """Emit an event, and store it in the metrics if it reports time in which the servers were unavailable."""
        if event["event"] in TIMED and "seconds" in event:
            append_event(self.run, event)
        self.sink(event)
