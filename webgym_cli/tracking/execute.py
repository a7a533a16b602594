"""Uploads events to Weights & Biases in the background; a failed or slow upload never affects a stage.

wandb runs only in guarded child processes, one at a time: each uploads the new lines of `metrics.jsonl` and exits. The
trainer writes to the same wandb run, so no uploader runs during training.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError
from webgym_cli.jobs.process import Job, last_line
from webgym_cli.records.events import EventSink
from webgym_cli.store.run import RunDir
from webgym_cli.tracking.pending import has_pending
from webgym_cli.tracking.plan import TrackingPlan, plan_tracking
from webgym_cli.util.secrets import environ_without_keys
from webgym_cli.venvs.wandb_mode import wandb_environment, with_key

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
    _reached: bool = False
    """Whether the last sender that ended was a success."""
    _failure: str = ""
    """Why the last sender was none."""
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
        return self.plan.mode != "online" or self._reached

    async def send_all(self) -> str:
        """Upload everything without a time limit; return the reason of a failure, empty on success."""
        await self._finish()
        self._start()
        await self._finish()
        return self._failure

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
                if has_pending(self.run, self.plan.destination) or (probe and not self._reached):
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
        self._job, self._reached, self._failure = None, code == 0, ""
        if code:
            self._fail(last_line(self.logs / LOG, f"exit status {code}"))
        return True

    def _fail(self, reason: str) -> None:
        """Record a failed upload, and report it once per command."""
        self._reached, self._failure = False, reason
        if not self._warned:
            self._warned = True
            message = f"Weights & Biases: {reason} (log: {self.logs / LOG}); metrics.jsonl has everything, sent later"
            self.sink({"event": "tracking_failed", "message": message})
