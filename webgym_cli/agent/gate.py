"""The gate before a policy server: no request is under way while its weights are changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from webgym_cli.records.sampling import PolicyVersion


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(slots=True)
class PolicyGate:
    """Lets requests pass while it is open; each has one policy version from its start to its end."""

    version: PolicyVersion | None = None
    """What the servers serve; None: they are not ours."""
    name: str = ""
    """The policy's name in trajectories."""
    held: int = 0
    """Episodes that wait now."""
    held_seconds: float = 0.0
    """Seconds that episodes have waited, summed over them."""
    _open: asyncio.Event = field(default_factory=_set_event)
    _closing: asyncio.Event = field(default_factory=asyncio.Event)
    _idle: asyncio.Event = field(default_factory=_set_event)
    _requests: int = 0

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
    async def request(self) -> AsyncIterator[PolicyVersion | None]:
        """Yield the version that answers a request; it stays for the time of the block."""
        await self.wait_open()
        self._requests += 1
        self._idle.clear()
        try:
            yield self.version
        finally:
            self._requests -= 1
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
