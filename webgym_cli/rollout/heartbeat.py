"""Progress reports of a rollout: events for the live view, and the status file for `webgym status`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from webgym_cli.errors import StoreError
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.rollout.monitor import Monitor
from webgym_cli.store.run import RunDir
from webgym_cli.store.status import RolloutState, write_status

# Interval of the reports.
_BEAT_SECONDS = 1.0


@dataclass(slots=True)
class Heartbeat:
    """The heartbeat of one rollout."""

    run: RunDir
    monitor: Monitor
    sink: EventSink

    async def beat(self) -> None:
        """Report periodically until cancelled."""
        while True:
            self._report(RolloutState.RUNNING)
            await asyncio.sleep(_BEAT_SECONDS)

    @contextmanager
    def record_end(self) -> Iterator[None]:
        """Write the final state of the rollout when the block ends."""
        state = RolloutState.FAILED
        try:
            yield
            state = RolloutState.FINISHED
        except (asyncio.CancelledError, KeyboardInterrupt):
            state = RolloutState.INTERRUPTED
            raise
        finally:
            self._report(state)

    def _report(self, state: RolloutState) -> None:
        snapshot = self.monitor.snapshot()
        if state is RolloutState.RUNNING:
            self.sink(make_event("status", transient=True, **snapshot))
        with suppress(StoreError):  # a full disk is reported when trajectories are stored
            write_status(self.run, snapshot, state)
