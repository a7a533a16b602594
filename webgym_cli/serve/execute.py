"""Runs vLLM's server: starts it, gives it new weights, notices when it dies, stops all of it."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import time
from pathlib import Path
from typing import NoReturn

from webgym_cli.errors import JobError, UsageError
from webgym_cli.jobs.process import Job, last_lines
from webgym_cli.records.events import EventSink, ignore
from webgym_cli.serve.control import Control, Fingerprint
from webgym_cli.serve.plan import ServerPlan
from webgym_cli.serve.weights import same_shape, same_weights

POLL_SECONDS = 0.5
WATCH_SECONDS = 5.0
UNHEALTHY = 500
_ERROR = re.compile(r"\b\w*(?:Error|Exception|ERROR)\b")
_PREFIX = re.compile(r"^(?:\([^)]*\)\s*)?(?:(?:ERROR|INFO|WARNING)\s[\d:.\s-]+\[[^\]]*\]\s*)?")
_ECHO = "Engine core initialization failed"
"""vLLM's last error names no cause; the cause stands above it."""


class PolicyServer:
    """One vLLM server under our care. An async context manager; nothing of it outlives the process that made it."""

    def __init__(self, plan: ServerPlan, logs: Path, sink: EventSink = ignore) -> None:
        self._plan = plan
        self._sink = sink
        self.log = logs / plan.log_name
        """vLLM's output."""
        self._job: Job | None = None
        self._control: Control | None = None
        self._serving = plan.model
        self._fingerprints: dict[str, Fingerprint] = {}

    @property
    def base_url(self) -> str:
        """The OpenAI base URL; its port is known once the server has been started."""
        return self._plan.base_url

    @property
    def model(self) -> str:
        """The model whose weights are served."""
        return self._serving

    async def __aenter__(self) -> PolicyServer:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop."""
        await self.stop()

    async def start(self) -> None:
        """Start the server and wait until it is healthy.

        Raises `UsageError` when the port is taken, `JobError` when the server dies or passes its deadline.
        """
        begun = time.monotonic()
        self._plan = self._plan.at_port(_free_port(self._plan.host, self._plan.port))
        self._tell("starting", f"starting vLLM on {self._plan.model} (log: {self.log})")
        env = self._plan.environment(os.environ)
        self._job = Job.spawn(self._plan.argv, env=env, log=self.log, grace=self._plan.stop_grace)
        self._control = Control(self._plan)
        try:
            await self._until_healthy(begun + self._plan.startup_timeout)
            names = await self._control.models()
            if self._plan.served_name not in names:  # somebody else's server took the port in between
                raise JobError(f"{self.base_url} serves {', '.join(names)}, not {self._plan.served_name}")
            self._serving = self._plan.model
            self._fingerprints[self._serving] = await self._control.fingerprint()
        except BaseException:
            await self.stop()
            raise
        seconds = round(time.monotonic() - begun, 1)
        self._tell("ready", f"vLLM is ready after {seconds:.0f} s: {self.base_url}", seconds=seconds)

    async def swap(self, model: str) -> None:
        """Serve the weights of another folder: in place where that is possible and proves right, else by a restart."""
        begun = time.monotonic()
        how = "in place"
        if not await self._swapped_in_place(model):
            how = "restart"
            await self.stop()
            self._plan = self._plan.with_model(model)
            await self.start()
        seconds = round(time.monotonic() - begun, 2)
        self._tell("swapped", f"serving {model} ({how}, {seconds:.1f} s)", seconds=seconds, how=how)

    async def watch(self) -> NoReturn:
        """Wait for the server's death and raise it as `JobError`."""
        job, control = self._running()
        while True:
            if (code := job.poll()) is not None:
                raise self._died(code)
            status = await control.health()
            if status is not None and status >= UNHEALTHY:
                raise JobError(f"vLLM's engine died: {meaningful(self.log)}", hint=f"read {self.log}")
            await asyncio.sleep(WATCH_SECONDS)

    async def stop(self) -> None:
        """Stop the server and everything that it started. Safe to call again."""
        control, job = self._control, self._job
        self._control = self._job = None
        if control is not None:
            await control.close()
        if job is not None:
            await job.stop()

    async def verify(self, model: str, before: Fingerprint) -> None:
        """Raise `JobError` unless the server computes with the weights of `model`.

        `before` is what it computed with the weights before. A model that was served earlier must give its numbers
        again. A new one must give other numbers, unless its files are the same bytes. In both cases the prefix cache
        must agree with the weights. This trusts vLLM's loader for the single tensor: it is the loader of the start.
        """
        _, control = self._running()
        now = await control.fingerprint()
        known = self._fingerprints.get(model)
        if not now.consistent:
            raise JobError("vLLM answers from a prefix cache of the weights before")
        if known is not None and not now.close_to(known):
            raise JobError(f"vLLM does not compute what it computed with {model} earlier")
        if known is None and now.values == before.values and not same_weights(model, self._serving):
            raise JobError("vLLM still computes with the weights before")
        self._fingerprints[model] = now

    async def _swapped_in_place(self, model: str) -> bool:
        if self._job is None or self._control is None or not self._plan.swaps_in_place:
            return False
        if not same_shape(self._plan.model, model):
            self._tell("restarting", f"{model} is not the same architecture and tokenizer: restarting vLLM")
            return False
        try:
            before = await self._control.fingerprint()
            await self._control.load_weights(model)
            await self.verify(model, before)
        except JobError as error:
            self._tell("restarting", f"the weights could not be swapped in place ({error}): restarting vLLM")
            return False
        self._serving = model
        return True

    async def _until_healthy(self, deadline: float) -> None:
        job, control = self._running()
        while True:
            if (code := job.poll()) is not None:
                raise self._died(code)
            if await control.health() == 200:
                return
            if time.monotonic() > deadline:
                raise JobError(
                    f"vLLM was not ready within {self._plan.startup_timeout:.0f} s: {meaningful(self.log)}",
                    hint=f"read {self.log}, or raise serve.startup_timeout",
                )
            await asyncio.sleep(POLL_SECONDS)

    def _running(self) -> tuple[Job, Control]:
        if self._job is None or self._control is None:
            raise JobError("vLLM is not running")
        return self._job, self._control

    def _died(self, code: int) -> JobError:
        return JobError(f"vLLM ended ({code}): {meaningful(self.log)}", hint=f"read {self.log}", returncode=code)

    def _tell(self, state: str, message: str, **facts: object) -> None:
        self._sink({"event": "serve", "state": state, "model": self._plan.model, "message": message, **facts})


def meaningful(log: Path) -> str:
    """Return the line of vLLM's log that says best what went wrong."""
    lines = last_lines(log, 400)
    errors = [line for line in lines if _ERROR.search(line) and _ECHO not in line]
    named = [line for line in errors if re.search(r"(?:Error|Exception): \S", line)]
    chosen = (named or errors or lines or ["it said nothing"])[-1]
    return _PREFIX.sub("", chosen).strip()[:300]


def _free_port(host: str, port: int) -> int:
    """Return the port, or a free one for 0. Raises `UsageError` when the server couldn't listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise UsageError(f"port {port} is already in use", hint="add: -s serve.port=0") from error
            raise UsageError(f"serve.host {host}, port {port}: {error}", hint="correct serve.host") from error
        return int(probe.getsockname()[1])
