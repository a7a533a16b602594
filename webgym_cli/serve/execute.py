"""The vLLM server at work: started, watched, given new weights, stopped."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from webgym_cli.errors import JobError
from webgym_cli.jobs.process import Job
from webgym_cli.records.events import EventSink
from webgym_cli.serve import failure, ports
from webgym_cli.serve.client import Fingerprint, ServerCallError, ServerClient
from webgym_cli.serve.plan import ServerPlan, base_url, local_address
from webgym_cli.serve.weights import check_model, digest, is_hub_id, tied_embeddings

POLL_SECONDS = 1.0
"""Between two health checks, and between two looks at whether the server lives."""
LOG = "vllm.log"
DROPPED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""Variables of our own environment that would mislead the role's interpreter."""


class PolicyServer:
    """One vLLM server. `start` it once; then `swap` its weights and `stop` it as often as needed.

    It never outlives this process, however this process ends.
    """

    def __init__(
        self, plan: ServerPlan, logs: Path, sink: EventSink, client: type[ServerClient] = ServerClient
    ) -> None:
        """Start nothing. `logs` is the folder of `vllm.log`."""
        self.plan = plan
        self.log = logs / LOG
        """What vLLM says; a restart goes on writing there."""
        self._sink = sink
        self._client = client
        self._job: Job | None = None
        self._port = plan.port
        self._model = plan.model
        self._digest = ""
        self._fingerprints: dict[str, Fingerprint] = {}
        """By digest of the weights: what a server answers with them."""

    @property
    def base_url(self) -> str:
        """OpenAI base URL; the port is known from the start on."""
        return base_url(self.plan.host, self._port)

    @property
    def model(self) -> str:
        """The weights that are served."""
        return self._model

    @property
    def pid(self) -> int | None:
        """Process id of the guard that the server runs under; None when it is stopped."""
        return self._job.pid if self._job else None

    async def start(self) -> None:
        """Start the server and wait until it is healthy.

        Raises `UsageError` when the port is taken, `SettingsError` when the model is none, `JobError` when vLLM ends
        or isn't healthy in time. Nothing runs afterwards unless it returned.
        """
        self._model = check_model(self._model)
        self._port = ports.claim(self.plan.host, self.plan.port, self._port)
        environment = {name: value for name, value in os.environ.items() if name not in DROPPED}
        environment["PATH"] = os.pathsep.join([str(Path(self.plan.python).parent), os.environ.get("PATH", os.defpath)])
        began = time.monotonic()
        self._job = Job.spawn(
            self.plan.argv(self._model, self._port),
            env=environment | self.plan.env_for(self._model),
            log=self.log,
            grace=self.plan.stop_grace,
        )
        try:
            await self._until_healthy(self._job, began)
            await self._remember()
        except BaseException:
            await self.stop()
            raise
        seconds = round(time.monotonic() - began, 1)
        message = f"vLLM is up at {self.base_url} after {seconds:.0f} s"
        self._sink(
            {"event": "serve", "seconds": seconds, "url": self.base_url, "model": self._model, "message": message}
        )

    async def swap(self, model: str) -> None:
        """Serve other weights of the same architecture and tokenizer, in place where that can be verified.

        Every other case is a restart. Afterwards the server answers with the new weights, or an error was raised and
        it is stopped.
        """
        model = check_model(model)
        began = time.monotonic()
        wanted = await asyncio.to_thread(digest, model)
        why = await self._in_place(model, wanted)
        if why:
            self._sink({"event": "swap_failed", "reason": why, "message": f"weights not swapped in place: {why}"})
            await self.stop()
            self._model = model
            await self.start()
        self._model, self._digest = model, wanted
        how, seconds = "restart" if why else "in_place", round(time.monotonic() - began, 2)
        words = "by a restart" if why else "in place"
        message = f"vLLM serves {Path(model).name} after {seconds} s, {words}"
        self._sink({"event": "swap", "seconds": seconds, "how": how, "model": model, "message": message})

    async def watch(self) -> None:
        """Wait for as long as the server runs. Raises `JobError` when it dies; returns after `stop`."""
        while (job := self._job) is not None:
            code = job.poll()
            # a server that was killed leaves processes behind, which its guard gives time to end: the port tells sooner
            if code is None and await ports.listening(local_address(self.plan.host), self._port):
                await asyncio.sleep(POLL_SECONDS)
            elif job is self._job:
                raise failure.died(code, self.log, "while it was serving")

    async def stop(self) -> None:
        """Stop the server and all its processes. Safe to call again."""
        job, self._job = self._job, None
        if job is not None:
            await job.stop()

    def _connect(self) -> ServerClient:
        return self._client(self.base_url.removesuffix("/v1"), self.plan.served_name)

    async def _until_healthy(self, job: Job, began: float) -> None:
        total = self.plan.startup_timeout
        async with self._connect() as client:
            while not await client.healthy():
                if (code := job.poll()) is not None:
                    raise failure.died(code, self.log, "while it started")
                done = time.monotonic() - began
                if done > total:
                    raise JobError(
                        f"vLLM was not healthy after {total:.0f} s: {failure.last_words(self.log)}; log: {self.log}",
                        hint="wait longer with -s serve.startup_timeout=SECONDS",
                    )
                facts = failure.last_words(self.log)
                self._sink(
                    {"event": "serve", "bar": "vllm", "done": round(done), "total": round(total), "facts": facts}
                )
                await asyncio.sleep(POLL_SECONDS)

    async def _remember(self) -> None:
        """Take the fingerprint of the weights that a fresh server has."""
        self._digest = await asyncio.to_thread(digest, self._model)
        try:
            async with self._connect() as client:
                self._fingerprints[self._digest] = await client.fingerprint(checksums=self.plan.dev_mode)
        except ServerCallError as error:  # it serves; only swaps in place can't be verified
            message = f"vLLM did not answer the known prompts, new weights will need a restart: {error}"
            self._sink({"event": "no_fingerprint", "reason": str(error), "message": message})

    async def _in_place(self, model: str, wanted: str) -> str:
        """Swap in place and return an empty text, or why that is not possible or did not work."""
        if self._job is None or self._job.poll() is not None:
            return "the server is not running"
        if wanted == self._digest:
            return ""
        before = self._fingerprints.get(self._digest)
        if is_hub_id(wanted) or not self.plan.dev_mode or before is None:
            return "it needs a local folder, a server on loopback and a fingerprint"
        if self.plan.device == "cpu" and await asyncio.to_thread(tied_embeddings, model):
            # seen with 0.32: reload_weights leaves the packed copy that the CPU backend made of the output layer
            return "vLLM on a CPU keeps the old output layer of a model with tied embeddings"
        try:
            async with self._connect() as client:
                await client.pause(self.plan.startup_timeout)
                await client.reload_weights(model, self.plan.startup_timeout)
                await client.reset_caches()
                await client.resume()
                now = await client.fingerprint(checksums=True)
        except ServerCallError as error:
            return str(error)
        except BaseException:  # half-swapped and paused: of no use to anyone
            await self.stop()
            raise
        return self._verify(wanted, before, now)

    def _verify(self, wanted: str, before: Fingerprint, now: Fingerprint) -> str:
        """Return why a fingerprint can't be that of the wanted weights; remember it otherwise."""
        if not now.differs(before):
            return "vLLM still answers like the previous weights"
        known = self._fingerprints.setdefault(wanted, now)
        return "" if now.matches(known) else "vLLM answers unlike these weights did before"
