"""Lifecycle of one vLLM server: start, watch, weight updates, sleep and stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType

from webgym_cli.errors import JobError
from webgym_cli.jobs.gpu import GpuMemory, Nvml
from webgym_cli.jobs.process import Job
from webgym_cli.records.events import EventSink, ServerEvent
from webgym_cli.serve import failure, ports
from webgym_cli.serve.client import ServerClient, find_failure
from webgym_cli.serve.engine import SLEEP_LEVEL, VllmEngine
from webgym_cli.serve.liveness import Liveness
from webgym_cli.serve.plan import ServerPlan, base_url
from webgym_cli.serve.weights import Digests, check_model
from webgym_cli.util.local_server import local_address
from webgym_cli.venvs.locate import venv_environ

# Interval between health checks and between liveness checks.
POLL_SECONDS = 1.0
LOG = "vllm.log"
# Silence of a server that is reported, in seconds.
SILENCE = 20.0
# Time between SIGTERM and SIGKILL of a server, in seconds.
STOP_GRACE = 15.0


class AdapterError(JobError):
    """A LoRA adapter is loaded and does nothing, or has no usable values; the merged weights can be served instead."""


class PolicyServer:
    """One vLLM server. Call `serve` and `release_gpus` as often as needed, and `stop` at the end.

    It never outlives this process, even if this process is killed.
    """

    def __init__(
        self, plan: ServerPlan, logs: Path, sink: EventSink, digests: Digests | None = None, nvml: Nvml | None = None
    ) -> None:
        """Create the server without starting it. `logs` is the folder of `vllm.log`.

        `digests`: shared with other servers of the same weights. `nvml`: measures the memory of a sleeping server.
        """
        self.plan = plan
        self.log = logs / (f"vllm_{plan.replica}.log" if plan.replica else LOG)
        """vLLM's log; a restart appends to it."""
        self._sink = sink
        self._digests = digests or Digests()
        self._nvml = nvml
        self._job: Job | None = None
        self._port = plan.port
        self.model = plan.model
        """Served weights: a folder or hub id."""
        self._asleep = False
        self._adapters: dict[str, str] = {}
        self._engine = VllmEngine(plan, self._connect)
        self._liveness: Liveness | None = None
        """Set while the server is watched."""
        self._reported = False

    @property
    def base_url(self) -> str:
        """OpenAI-compatible base URL."""
        return base_url(self.plan.serve.host, self._port)

    @property
    def is_serving(self) -> bool:
        """Whether the server is started and awake."""
        return self._job is not None and not self._asleep

    @property
    def pid(self) -> int | None:
        """Process id of the server's guard; None if stopped."""
        return self._job.pid if self._job else None

    async def serve(self, model: str, adapters: Mapping[str, str] = MappingProxyType({})) -> None:
        """Serve weights: start the server, wake it or swap its weights as needed.

        `adapters`: folders of LoRA adapters by name. Raises the errors of `start`; on an error the server is stopped.
        """
        if self._job is None:
            self.model, self._adapters = model, dict(adapters)
            await self.start()
            return
        if self._asleep or model != self.model:
            await self.swap(model)
        for name, folder in adapters.items():
            if name not in self._adapters and await self.add_adapter(name, folder):
                await self._restart(model, adapters)
                return

    async def add_adapter(self, name: str, folder: str) -> str:
        """Load a LoRA adapter without pausing requests; return the reason of a failure, empty on success."""
        began = time.monotonic()
        if why := await find_failure(self._engine.load_adapter(name, folder)):
            message = f"adapter {name} not loaded beside the others: {why}"
            self._sink(ServerEvent(event="swap_failed", reason=why, message=message))
            return why
        self._adapters[name] = folder
        seconds = round(time.monotonic() - began, 2)
        message = f"vLLM serves {name} after {seconds} s, beside what it served"
        self._sink(ServerEvent(event="swap", seconds=seconds, how="adapter", model=folder, message=message))
        return ""

    async def drop_adapters(self, kept: Collection[str]) -> None:
        """Unload all LoRA adapters except `kept`; a failed unload is retried by the next call."""
        for name in [name for name in self._adapters if name not in kept]:
            if why := await find_failure(self._engine.unload_adapter(name)):
                message = f"adapter {name} is still loaded: {why}"
                self._sink(ServerEvent(event="unload_failed", reason=why, message=message))
            else:
                del self._adapters[name]

    async def release_gpus(self) -> None:
        """Release the GPUs for training by the plan's sleep policy; stop the server if sleep fails.

        Raises `JobError` if a stopped server's GPU memory is not freed.
        """
        if self._job is None or self._asleep or self.plan.sleep.action == "keep":
            return
        began = time.monotonic()
        if self.plan.sleep.action != "stop" and await self._sleeps(began):
            return
        memory = GpuMemory(self._sink, self._nvml)
        if self.pid:
            await asyncio.to_thread(memory.note, self.pid)
        await self.stop()
        await memory.freed()
        seconds = round(time.monotonic() - began, 2)
        message = f"vLLM is stopped after {seconds} s, the training gets the GPU"
        self._sink(ServerEvent(event="stop", seconds=seconds, message=message))

    async def start(self) -> None:
        """Start the server and wait until it is healthy.

        Raises `UsageError` if the port is in use, `SettingsError` for an invalid model, and `JobError` if vLLM exits
        or is not healthy in time. On an error the server is stopped.
        """
        self.model = check_model(self.model)
        self._adapters = await asyncio.to_thread(_keep_present, self._adapters)
        self._port = await ports.claim_port(self.plan.serve.host, self.plan.port, self._port)
        began = time.monotonic()
        self._job = Job.spawn(
            self.plan.argv(self.model, self._port, self._adapters),
            env=venv_environ(Path(self.plan.python)) | self.plan.env_for(self.model),
            log=self.log,
            grace=STOP_GRACE,
        )
        try:
            await self._until_healthy(self._job, began)
            # Without a fingerprint of its weights a server can't prove later that it has loaded others.
            if why := await find_failure(self._engine.remember(self.model, await self._digests.of(self.model))):
                message = f"vLLM did not answer the known prompts, new weights will need a restart: {why}"
                self._sink(ServerEvent(event="no_fingerprint", reason=why, message=message))
            for name, folder in self._adapters.items():
                if why := await find_failure(self._engine.check_adapter(name, folder)):
                    raise AdapterError(f"the adapter {name} can't be served: {why}")
        # Also on cancellation: a half-started server would keep its GPU memory.
        except BaseException:
            await self.stop()
            raise
        seconds = round(time.monotonic() - began, 1)
        message = f"vLLM is up at {self.base_url} after {seconds:.0f} s"
        self._sink(ServerEvent(event="serve", seconds=seconds, url=self.base_url, model=self.model, message=message))

    async def swap(self, model: str) -> None:
        """Serve other weights of the same architecture and tokenizer, or wake up from sleep.

        Weights are loaded in place if that can be verified, else by a restart. On an error the server is stopped.
        """
        model, began = check_model(model), time.monotonic()
        wanted = await self._digests.of(model)
        change, done = self._engine.swap, "in place"
        event, failed = ServerEvent(event="swap"), ServerEvent(event="swap_failed")
        if self._asleep:
            change, done = self._engine.wake, "awake again"
            event, failed = ServerEvent(event="wake"), ServerEvent(event="wake_failed")
        if why := await self._change(change, model, wanted):
            self._sink(failed | {"reason": why, "message": f"weights not loaded in place: {why}"})
            await self._restart(model)
        self.model, self._asleep = model, False
        how, words = ("restart", "by a restart") if why else ("in_place", done)
        seconds = round(time.monotonic() - began, 2)
        message = f"vLLM serves {Path(model).name} after {seconds} s, {words}"
        self._sink(event | {"seconds": seconds, "how": how, "model": model, "message": message})

    async def watch(self) -> None:
        """Wait while the server runs. Raises `JobError` when it dies; returns after `stop`."""
        while self._job is not None:
            await self.check()
            await asyncio.sleep(POLL_SECONDS)

    async def check(self) -> None:
        """Raise `JobError` if the server has died, or hangs."""
        if (job := self._job) is None:
            return
        code = job.poll()
        # the guard gives child processes of a killed server time to end; the closed port is detected sooner
        listens = code is None and await ports.is_listening(local_address(self.plan.serve.host), self._port)
        if not listens and job is self._job:
            raise failure.server_died_error(code, self.log, "while it was serving")
        if job is self._job:
            self._check_liveness(job)

    def _check_liveness(self, job: Job) -> None:
        """Raise `JobError` if the server has been silent for too long; report a silence before that."""
        guard = job.pid if self.plan.device == "cpu" else None
        live = self._liveness = self._liveness or Liveness(self._connect, guard)
        silent = live.observe()
        if silent > self.plan.serve.stall_timeout and silent > live.limit(self.plan.serve.stall_timeout):
            last = failure.last_line(self.log)
            raise JobError(
                f"vLLM has answered no request for {silent:.0f} s (serve.stall_timeout): {last}; log: {self.log}",
                hint=f"read {self.log}, then run the same command again: what is stored stays",
            )
        if silent > SILENCE and not self._reported:
            message = f"vLLM at {self.base_url} has answered no request for {silent:.0f} s; log: {self.log}"
            self._sink(ServerEvent(event="silent", seconds=round(silent, 1), url=self.base_url, message=message))
        self._reported = silent > SILENCE

    async def stop(self) -> None:
        """Stop the server and all its processes. Idempotent."""
        live, self._liveness = self._liveness, None
        if live is not None:
            await live.close()
        job, self._job, self._asleep = self._job, None, False
        if job is not None:
            await job.stop()

    def _connect(self) -> ServerClient:
        return ServerClient(self.base_url.removesuffix("/v1"), self.plan.serve.served_model_name)

    async def _change(self, change: Callable[..., Awaitable[None]], *arguments: str) -> str:
        """Change the engine; return the reason of a failure, empty on success.

        Stops the server if the change is interrupted, because its state is then undefined.
        """
        if self._job is None or self._job.poll() is not None:
            return "the server is not running"
        try:
            return await find_failure(change(*arguments))
        except BaseException:
            await self.stop()
            raise

    async def _restart(self, model: str, adapters: Mapping[str, str] = MappingProxyType({})) -> None:
        await self.stop()
        self.model, self._adapters = model, dict(adapters)
        await self.start()

    async def _until_healthy(self, job: Job, began: float) -> None:
        total = self.plan.serve.startup_timeout
        async with self._connect() as client:
            while not await client.healthy():
                if (code := job.poll()) is not None:
                    raise failure.server_died_error(code, self.log, "while it started")
                done = time.monotonic() - began
                if done > total:
                    raise JobError(
                        f"vLLM was not healthy after {total:.0f} s: {failure.last_line(self.log)}; log: {self.log}",
                        hint="wait longer with -s serve.startup_timeout=SECONDS",
                    )
                facts = failure.last_line(self.log)
                self._sink(
                    {"event": "serve", "bar": "vllm", "done": round(done), "total": round(total), "facts": facts}
                )
                await asyncio.sleep(POLL_SECONDS)

    async def _sleeps(self, began: float) -> bool:
        """Put the server to sleep; return whether its GPU memory is free."""
        why = await self._change(self._engine.sleep)
        if not why and self.pid:
            used = await asyncio.to_thread(GpuMemory(self._sink, self._nvml).held_gib, self.pid)
            limit = self.plan.sleep.memory_gb
            if used is not None and used > limit:
                why = f"it holds {used:.1f} GiB of the GPU, more than {limit:g}"
        seconds = round(time.monotonic() - began, 2)
        if why:
            message = f"vLLM does not sleep, it is stopped: {why}"
            self._sink(ServerEvent(event="sleep_failed", reason=why, message=message))
        else:
            self._asleep = True
            message = f"vLLM sleeps after {seconds} s: its GPU memory is free, its process stays"
            self._sink(ServerEvent(event="sleep", seconds=seconds, level=SLEEP_LEVEL, message=message))
        return not why


def _keep_present(adapters: Mapping[str, str]) -> dict[str, str]:
    """Return the adapters that exist on disk: vLLM fails to start with a missing one."""
    return {name: folder for name, folder in adapters.items() if Path(folder).is_dir()}
