"""State shared by concurrent rollouts of one process: slots, exclusive resources and the policy gate."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from webgym_cli.agent.client.gate import PolicyGate
from webgym_cli.jobs.machine_time import MachineMeter
from webgym_cli.records.task import Split
from webgym_cli.rollout.queue import ResourceClaims


@dataclass(slots=True)
class SlotPool:
    """Pool of episode slots; evaluation episodes have priority."""

    free: int
    """Number of free slots."""
    _waiting: dict[Split, deque[asyncio.Future[None]]] = field(
        default_factory=lambda: {Split.TEST: deque(), Split.TRAIN: deque()}
    )

    @asynccontextmanager
    async def slot(self, split: Split) -> AsyncIterator[None]:
        """Hold a slot for the duration of the block."""
        await self._take(split)
        try:
            yield
        finally:
            self._give_back()

    async def _take(self, split: Split) -> None:
        if self.free:
            self.free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting[split].append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back()  # the slot was handed over at the same moment
            raise

    def _give_back(self) -> None:
        for waiting in self._waiting.values():
            while waiting:
                turn = waiting.popleft()
                if not turn.done():
                    turn.set_result(None)
                    return
        self.free += 1


@dataclass(slots=True)
class SharedRollouts:
    """State shared by the training and evaluation rollouts of an asynchronous loop."""

    gate: PolicyGate
    """Gate of the training policy; holds requests while the weights change."""
    slots: SlotPool
    claims: ResourceClaims
    meter: MachineMeter = field(default_factory=MachineMeter)
    """One for all of them: they use the same processes and GPUs."""
