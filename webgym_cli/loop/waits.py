"""Who waits for what in an asynchronous loop, and for how long: told where it takes long, counted for the status."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from webgym_cli.agent.gate import PolicyGate
from webgym_cli.loop.collector import Collector
from webgym_cli.records.events import Event, EventSink, make_event
from webgym_cli.rollout.monitoring.monitor import Monitor

# Between two looks at the counts that `webgym status` shows.
_COUNT_SECONDS = 1.0
# A wait that takes so long is told, and told again.
_WAIT_SECONDS = 60.0


@dataclass(slots=True)
class LoopWaits:
    """The waits that last now."""

    monitor: Monitor | None = None
    """Of the engine that collects; None before it runs."""
    _since: dict[str, float] = field(default_factory=dict)
    """Who waits for what, and since when."""

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Note a wait for the time of the block."""
        self._since[what] = time.monotonic()
        try:
            yield
        finally:
            del self._since[what]

    async def watch(self, collector: Collector, gate: PolicyGate, sink: EventSink) -> None:
        """Say who waits for what where that takes long, and keep the counts that `webgym status` shows."""
        noted_at = time.monotonic()
        while True:
            await asyncio.sleep(_COUNT_SECONDS)
            counts = collector.admission.counts()
            if self.monitor is not None:
                self.monitor.set_queue_depth("groups open", counts["open"])
                self.monitor.set_queue_depth("groups ready", counts["ready"])
                self.monitor.set_queue_depth("slots waiting", collector.waiting)
                self.monitor.set_queue_depth("episodes held", gate.held)
            now = time.monotonic()
            if now - noted_at < _WAIT_SECONDS:
                continue
            noted_at = now
            for what, since in self._since.items():
                if (seconds := now - since) >= _WAIT_SECONDS:
                    sink(_describe(what, seconds, collector))


def _describe(what: str, seconds: float, collector: Collector) -> Event:
    counts = collector.admission.counts()
    late = next((group.id for group in collector.admission.groups.values() if not group.closed), "")
    message = f"{what}, for {seconds / 60:.0f} minutes: {counts['ready']} groups are ready, {counts['open']} open"
    message += f", the oldest of {late}" if late else ""
    return make_event("waiting", what=what, seconds=round(seconds), **counts, group=late, message=message)
