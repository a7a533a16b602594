"""Gate in front of the policy servers: each request has one policy version from its start to its end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from webgym_cli.records.sampling import PolicyVersion


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(frozen=True, slots=True)
class ServedPolicy:
    """The policy that answers a request."""

    version: PolicyVersion | None = None
    """None: webgym did not start the servers."""
    name: str = ""
    """The policy's name in trajectories."""
    model: str = ""
    """Its model name in requests, that of a LoRA adapter; empty: the servers' default."""
    servers: tuple[str, ...] = ()
    """Addresses of the servers that answer; empty: all."""


@dataclass(slots=True)
class PolicyGate:
    """Admits requests while it is open.

    Weights are updated with the gate closed. A policy that is served beside the previous one is set while the gate is
    open: requests in flight keep theirs.
    """

    policy: ServedPolicy = field(default_factory=ServedPolicy)
    """Policy of the requests admitted from now on."""
    held: int = 0
    """Number of episodes that are waiting."""
    held_seconds: float = 0.0
    """Waiting time in seconds, summed over episodes."""
    _open: asyncio.Event = field(default_factory=_set_event)
    _closed: asyncio.Event = field(default_factory=asyncio.Event)
    _idle: asyncio.Event = field(default_factory=_set_event)
    _requests: Counter[str] = field(default_factory=Counter)
    """Number of requests in flight by model name."""

    @property
    def models(self) -> frozenset[str]:
        """Model names of the requests in flight and of new ones."""
        return frozenset({self.policy.model, *self._requests})

    @property
    def is_open(self) -> bool:
        """Whether requests are admitted at once."""
        return self._open.is_set()

    async def wait_open(self) -> None:
        """Wait until the gate is open; it stays open until the next `await`."""
        loop = asyncio.get_running_loop()
        while not self._open.is_set():
            began = loop.time()
            self.held += 1
            try:
                await self._open.wait()
            finally:
                self.held -= 1
                self.held_seconds += loop.time() - began

    async def wait_closed(self) -> None:
        """Wait until the gate is closed and no request is in flight."""
        await self._closed.wait()

    @asynccontextmanager
    async def request(self) -> AsyncIterator[ServedPolicy]:
        """Wait for admission and yield the policy of a request; it stays served within the block."""
        await self.wait_open()
        policy = self.policy
        self._requests[policy.model] += 1
        self._idle.clear()
        try:
            yield policy
        finally:
            self._requests[policy.model] -= 1
            self._requests += Counter()  # drops counts of 0
            if not self._requests:
                self._idle.set()

    @asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        """Close the gate within the block, which begins once the requests in flight have ended."""
        self._open.clear()
        try:
            await self._idle.wait()
            self._closed.set()
            yield
        finally:
            self._closed.clear()
            self._open.set()
