"""Uploads events to Weights & Biases in the background; a failed or slow upload never affects a stage.

wandb runs only in guarded child processes, one at a time: each uploads the new lines of `metrics.jsonl` and exits. The
trainer writes to the same wandb run, so no uploader runs during training. Pending events are those of `metrics.jsonl`
after an offset that only a successful upload advances.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError
from webgym_cli.jobs.process import Job, find_cause, read_failure
from webgym_cli.records.base import Record
from webgym_cli.records.events import EventSink
from webgym_cli.store.run import RunDir, run_id
from webgym_cli.util.files import file_size, parse_valid, read_optional_object, write_json
from webgym_cli.util.json_values import parse_object
from webgym_cli.util.optional import known_or
from webgym_cli.util.secrets import environ_without_keys
from webgym_cli.venvs.wandb_mode import Mode, wandb_environment, wandb_mode, with_key

LOG = "tracking.log"
# Folder of wandb's files in the attempt's logs; the trainer's files are in `wandb` beside it.
FOLDER = "tracking"
# Seconds between SIGTERM and SIGKILL of an uploader.
_GRACE = 2.0
# An uploader logs events only: console, machine and packages of the wandb run are those of the trainer.
_QUIET = {
    "WANDB_CONSOLE": "off",
    "WANDB_DISABLE_CODE": "true",
    "WANDB_DISABLE_GIT": "true",
    "WANDB_X_DISABLE_META": "true",
    "WANDB_X_DISABLE_STATS": "true",
    "WANDB_X_SAVE_REQUIREMENTS": "false",
    "WANDB_FINISH_TIMEOUT": "600",
    "WANDB_FINISH_TIMEOUT_RAISES": "true",
}


class TrackingPlan(Record):
    """The wandb run of a run directory. Contains no secret, because it is an argument of the uploader process."""

    root: Path
    """The run directory."""
    mode: Mode
    reason: str
    """Why this mode."""
    entity: str
    """User or team; empty: the default of the account."""
    project: str
    name: str
    """The run's name there."""
    id: str
    """The run's id there; empty where the run directory is still to be made."""
    samples: int
    """Trajectories in each table; 0: no table."""
    seed: int
    """Decides which trajectories."""

    @property
    def enabled(self) -> bool:
        """Whether events are uploaded, or stored for a later upload."""
        return self.mode != "disabled" and bool(self.id)

    @property
    def destination(self) -> str:
        """Key of the upload offset: offline files and the online run are counted separately."""
        return f"{self.mode}:{self.entity}/{self.project}/{self.id}"

    def to_json(self) -> dict[str, Any]:
        """Return what `--dry-run` prints."""
        facts = self.model_dump(mode="json", include={"mode", "reason", "entity", "project", "name", "id", "samples"})
        return {"mode": self.mode, "reason": self.reason} if self.mode == "disabled" else facts


def plan_tracking(run: RunDir, settings: Settings, environ: Mapping[str, str] | None = None) -> TrackingPlan:
    """Return the plan. `environ` is this process's environment unless given."""
    mode, reason = wandb_mode(settings, known_or(environ, os.environ))
    log = settings.log_config
    return TrackingPlan(
        root=run.root,
        mode=mode,
        reason=reason,
        entity=log.entity_name,
        project=log.project_name,
        name=log.run_name,
        id=run_id(run, settings),
        samples=log.sample_trajectories,
        seed=settings.seed,
    )


@dataclass(frozen=True, slots=True)
class PendingEvents:
    """Events that are not uploaded yet."""

    events: tuple[dict[str, Any], ...]
    """In their order; damaged lines left out."""
    iteration: int
    """The newest iteration that the events before them named."""
    end: int
    """Bytes of `metrics.jsonl` up to the last of them."""


def has_pending(run: RunDir, destination: str) -> bool:
    """Return whether any event is pending."""
    # Compares lengths only, because it is called after every event.
    size = file_size(run.metrics)
    return size != _count_sent(run, destination, size)


def read_pending(run: RunDir, destination: str) -> PendingEvents:
    """Return the destination's pending events. An incomplete last line stays pending."""
    content = run.metrics.read_bytes() if run.metrics.is_file() else b""
    whole = content[: content.rfind(b"\n") + 1]
    start = _count_sent(run, destination, len(whole))
    before = [event["iteration"] for event in _events(whole[:start]) if isinstance(event.get("iteration"), int)]
    return PendingEvents(tuple(_events(whole[start:])), next(reversed(before), 0), len(whole))


def mark_sent(run: RunDir, destination: str, end: int) -> None:
    """Record that everything up to offset `end` is uploaded. Raises `StoreError`."""
    write_json(run.tracking, {**read_optional_object(run.tracking), destination: end})


def _count_sent(run: RunDir, destination: str, size: int) -> int:
    """Return the number of uploaded bytes; 0 if unknown, or if the file is shorter than that."""
    end = read_optional_object(run.tracking).get(destination)
    return end if isinstance(end, int) and 0 <= end <= size else 0


def _events(lines: bytes) -> list[dict[str, Any]]:
    return [event for event in parse_valid(lines.splitlines(), parse_object) if isinstance(event.get("event"), str)]


@dataclass(slots=True)
class Tracker:
    """Tracker of one command on a run; a no-op if tracking is disabled."""

    run: RunDir
    settings: Settings
    logs: Path
    """The log folder of this attempt."""
    sink: EventSink
    plan: TrackingPlan = field(init=False)
    _job: Job | None = None
    _log_start: int = 0
    """Size of the log when the last upload began."""
    _failure: str | None = None
    """Why the last upload failed; empty: it was a success; None: none has ended."""
    _warned: bool = False

    def __post_init__(self) -> None:
        """Plan."""
        self.plan = plan_tracking(self.run, self.settings)

    def note(self) -> None:
        """Upload new events in the background; events that arrive meanwhile are uploaded by the next call."""
        if self.plan.enabled and self._has_ended() and has_pending(self.run, self.plan.destination):
            self._start()

    async def make_way(self) -> bool:
        """Upload everything and release the wandb run for the trainer. Return whether the server was reached.

        Takes at most `log_config.wait_seconds`. In offline mode only files are written.
        """
        if not self.plan.enabled:
            return True
        await self._settle(probe=self.plan.mode == "online")
        return self.plan.mode != "online" or self._failure == ""

    async def send_all(self) -> str:
        """Upload everything without a time limit; return the reason of a failure, empty on success."""
        await self._finish()
        self._start()
        await self._finish()
        return self._failure or ""

    async def close(self, *, in_time: bool) -> None:
        """Stop, with `in_time` after uploading everything, else at once. The next command uploads the rest."""
        try:
            if in_time and self.plan.enabled:
                await self._settle()
        finally:
            if self._job is not None:
                job, self._job = self._job, None
                await job.stop()

    async def _settle(self, *, probe: bool = False) -> None:
        """Upload everything within the time limit; with `probe`, contact the server even if nothing is pending."""
        try:
            async with asyncio.timeout(self.settings.log_config.wait_seconds):
                await self._finish()
                if has_pending(self.run, self.plan.destination) or (probe and self._failure != ""):
                    self._start()
                    await self._finish()
        except TimeoutError:
            if self._job is not None:
                await self._job.stop()
                self._job = None
                self._fail(f"no answer within {self.settings.log_config.wait_seconds:g} s")

    async def _finish(self) -> None:
        """Wait for the running uploader."""
        if self._job is not None:
            await self._job.wait()
            self._has_ended()

    def _start(self) -> None:
        argv = [sys.executable, "-P", "-m", "webgym_cli.tracking.worker", self.plan.model_dump_json()]
        folder = self.logs / FOLDER
        folders = {"WANDB_DIR": str(folder), "WANDB_DATA_DIR": str(folder)}
        # excludes another program's wandb service and run id
        others = ("WANDB_SERVICE", "WANDB_RUN_ID")
        inherited = {name: value for name, value in environ_without_keys().items() if name not in others}
        env = with_key(inherited, self.settings) | wandb_environment(self.plan.mode, os.environ) | _QUIET | folders
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._log_start = file_size(self.logs / LOG)
            self._job = Job.spawn(argv, env=env, log=self.logs / LOG, grace=_GRACE)
        except (JobError, OSError) as error:
            self._fail(str(error))

    def _has_ended(self) -> bool:
        """Whether no uploader is running; reports one that failed."""
        if self._job is None:
            return True
        code = self._job.poll()
        if code is None:
            return False
        self._job, self._failure = None, ""
        if code:
            log = self.logs / LOG
            lines = read_failure(log, 50, file_size(log) - self._log_start)
            self._fail(find_cause(lines) or f"exit status {code}")  # wandb's own last words name its folder
        return True

    def _fail(self, reason: str) -> None:
        """Record a failed upload, and report it once per command."""
        self._failure = reason
        if not self._warned:
            self._warned = True
            message = f"Weights & Biases: {reason} (log: {self.logs / LOG}); metrics.jsonl has everything, sent later"
            self.sink({"event": "tracking_failed", "message": message})
