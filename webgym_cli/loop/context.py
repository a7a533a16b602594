"""`StageContext`: what the stages of a run share in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webgym_cli.config.model import Settings
from webgym_cli.jobs.budget import Budget
from webgym_cli.records.events import Event, EventSink, make_event
from webgym_cli.store.checkpoints import checkpoints, repair_link
from webgym_cli.store.index.spending import open_budget
from webgym_cli.store.metrics import append_event, read_events
from webgym_cli.store.run import RunDir
from webgym_cli.tracking.execute import Tracker

if TYPE_CHECKING:
    from webgym_cli.loop.serving import Serving


@dataclass(slots=True)
class StageContext:
    """What the stages of a run share in one process. Async context manager: exit stops the servers and tracking."""

    run: RunDir
    settings: Settings
    logs: Path
    """Log folder of this attempt."""
    sink: EventSink
    running: Serving | None = None
    """Servers of the current policy, once a stage asked for them."""
    spent: Budget | None = None
    """Budget of the run, once a stage asked for it; of a nested run that of the outer one."""
    tracker: Tracker = field(init=False)
    """Sends recorded metrics to Weights & Biases."""

    def __post_init__(self) -> None:
        """Create the tracker without starting it."""
        self.tracker = Tracker(self.run, self.settings, self.logs, self.sink)

    async def __aenter__(self) -> StageContext:
        """Repair the state after a crash: an incomplete rename, and a training without its metrics event."""
        repair_link(self.run, self.settings)
        self.note_trainings()
        self.tracker.note()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        """Stop the servers; flush tracking, without waiting for it after a signal."""
        try:
            await self.stop_servers()
        finally:
            await self.tracker.close(in_time=kind is None or issubclass(kind, Exception))

    @property
    def serving(self) -> Serving:
        """Servers of the current policy. Imported here: most stages need none."""
        if self.running is None:
            from webgym_cli.loop.serving import Serving

            self.running = Serving(self.run, self.settings, self.logs, self.sink)
        return self.running

    @property
    def budget(self) -> Budget:
        """Budget of the run, shared by the stages of this command: its limits, and what is spent already."""
        if self.spent is None:
            self.spent = open_budget(self.run, self.settings)
        return self.spent

    async def stop_servers(self) -> None:
        """Stop the policy servers, if there are any."""
        if self.running is not None:
            await self.running.stop()

    async def release_gpus(self) -> None:
        """Release the GPUs of the policy servers, if there are any, by the policy of `serve.during_training`."""
        if self.running is not None:
            await self.running.release_gpus()

    def record(self, event: Event, message: str = "") -> None:
        """Append an event to the run's metrics and emit it, with its message if there is one."""
        append_event(self.run, event)
        self.sink(event | {"message": message} if message else event)
        self.tracker.note()

    def announce(self, plan: Mapping[str, Any], message: str, damaged: Sequence[str]) -> None:
        """Emit a plan, its notes and the damaged lines of the buffer."""
        self.sink(make_event(**plan, message=message))
        for note in plan.get("notes", ()):
            self.sink({"event": "note", "message": note})
        for line in damaged:
            self.sink(make_event("damaged", line=line, message=f"skipped a damaged line: {line}"))

    def note_trainings(self) -> None:
        """Record each checkpoint whose training is not in the metrics yet."""
        noted = {event.get("name") for event in read_events(self.run, "train")}
        for checkpoint in checkpoints(self.run):
            if checkpoint.name not in noted:
                self.record(make_event("train", **checkpoint.model_dump(mode="json")))
