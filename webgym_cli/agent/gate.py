"""The gate before a policy server: each request has one policy version, from its start to its end."""

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
    """What answers a request."""

    version: PolicyVersion | None = None
    """None: the servers are not ours."""
    name: str = ""
    """The policy's name in trajectories."""
    model: str = ""
    """Its name in requests: of a LoRA adapter; empty: the servers' own."""
    servers: tuple[str, ...] = ()
    """Addresses of the servers that answer; empty: all that there are."""


@dataclass(slots=True)
class PolicyGate:
    """Lets requests pass while it is open.

    Weights are changed with the gate closed. A policy that is served beside the one before is set while it is open:
    requests under way keep the one that they began with.
    """

    policy: ServedPolicy = field(default_factory=ServedPolicy)
    """What answers the requests that pass from now on."""
    held: int = 0
    """Episodes that wait now."""
    held_seconds: float = 0.0
    """Seconds that episodes have waited, summed over them."""
    _open: asyncio.Event = field(default_factory=_set_event)
    _closing: asyncio.Event = field(default_factory=asyncio.Event)
    _idle: asyncio.Event = field(default_factory=_set_event)
    _requests: Counter[str] = field(default_factory=Counter)
    """Those under way, by the name of their model."""

    @property
    def models(self) -> frozenset[str]:
        """The names of the models that requests are, or would be, asked of."""
        return frozenset({self.policy.model, *self._requests})

    @property
    def is_open(self) -> bool:
        """Whether a request would pass at once."""
        return self._open.is_set()

    async def wait_open(self) -> None:
        """Wait until requests pass. Until the next `await` they do."""
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
        """Wait until requests are held."""
        while self._open.is_set():
            await self._closing.wait()

    @asynccontextmanager
    async def request(self) -> AsyncIterator[ServedPolicy]:
        """Yield the policy that answers a request; it is served for the time of the block."""
        await self.wait_open()
        policy = self.policy
        self._requests[policy.model] += 1
        self._idle.clear()
        try:
            yield policy
        finally:
            self._requests[policy.model] -= 1
            self._requests += Counter()  # drops those that are 0
            if not self._requests:
                self._idle.set()

    @asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        """Hold requests for the time of the block, which begins once those under way have ended."""
        self._open.clear()
        self._closing.set()
        try:
            await self._idle.wait()
            yield
        finally:
            self._closing.clear()
            self._open.set()
