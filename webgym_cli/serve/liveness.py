"""Liveness of a vLLM server: whether it answers requests, not whether it answers `/health`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from webgym_cli.jobs.machine_time import measure_cpu
from webgym_cli.jobs.workers import cancel_tasks
from webgym_cli.serve.client import EngineLoad, ServerClient

# Seconds between two looks, and the timeout of the one-token request of each.
LOOK_SECONDS = 10.0
# A gap between two calls counts at most this much: this process was stopped or busy, or the server was being changed.
_MAX_TICK = 5.0
# Factor of the limit for a server that computes on a CPU, and the CPU time per second from which on it does. One long
# prompt is a single step there, during which no counter moves; a stopped process and a deadlock use no CPU time.
_COMPUTING_FACTOR = 5.0
_COMPUTING = 0.05


class Liveness:
    """Silence of one server. A sign of life is an answered probe or a moved counter, unless an engine stands still.

    A saturated server answers the probe late, but its engines generate tokens; of several engines behind one address
    one that hangs keeps its requests and moves no counter.
    """

    def __init__(self, connect: Callable[[], ServerClient], guard: int | None) -> None:
        """`connect` returns a client of the server. `guard`: process whose descendants compute on a CPU; None: GPUs."""
        self.silent = 0.0
        """Seconds without a sign of life."""
        self._connect = connect
        self._guard = guard
        self._observed = self._looked = time.monotonic()
        self._look: asyncio.Task[None] | None = None
        self._load: dict[str, EngineLoad] = {}
        self._measured = time.monotonic(), self._count_cpu_seconds()
        """Time of the last look, and the CPU time of the server then."""
        self._computing = False
        """Whether the server used CPU time between the last two looks."""

    def observe(self) -> float:
        """Count the silence and start a look if one is due; call it every few seconds. Return the silence."""
        now = time.monotonic()
        self.silent += min(now - self._observed, _MAX_TICK)
        self._observed = now
        if (self._look is None or self._look.done()) and now - self._looked >= LOOK_SECONDS:
            if self._look is not None:
                self._look.result()
            self._looked = now
            self._look = asyncio.create_task(self._look_for_signs())
        return self.silent

    def limit(self, seconds: float) -> float:
        """Return the silence after which the server counts as dead; `seconds`: `serve.stall_timeout`."""
        return seconds * (_COMPUTING_FACTOR if self._computing else 1)

    async def close(self) -> None:
        """Cancel the current look."""
        if self._look is not None:
            await cancel_tasks(self._look)

    async def _look_for_signs(self) -> None:
        async with self._connect() as client:
            answered = await client.answers(LOOK_SECONDS)
            before, self._load = self._load, await client.read_load()
        pairs = [(before[name], load) for name, load in self._load.items() if name in before]
        moved = any(old.progress != new.progress for old, new in pairs)
        stalled = any(new.requests and old.progress == new.progress for old, new in pairs)
        if (answered or moved) and not stalled:
            self.silent = 0.0
        (then, before_cpu), self._measured = self._measured, (time.monotonic(), self._count_cpu_seconds())
        self._computing = self._measured[1] - before_cpu >= _COMPUTING * (self._measured[0] - then) > 0

    def _count_cpu_seconds(self) -> float:
        """Return the CPU time of the server's processes; 0 on GPUs, where a hung engine polls without end."""
        return measure_cpu(self._guard) if self._guard is not None else 0.0
