"""`webgym track`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webgym_cli.cli.options import RunArg, StageOptions
from webgym_cli.cli.output import Output
from webgym_cli.errors import JobError, MissingStageError, UsageError

if TYPE_CHECKING:
    from webgym_cli.config.model import Settings
    from webgym_cli.store.run import RunDir


def track(run: RunArg, options: StageOptions) -> None:
    """Upload pending events to Weights & Biases.

    Waits until everything is uploaded. For a run on a machine without network, copy its folder to one that has network
    access.

    Examples:
      webgym track runs/a --dry-run
      WANDB_API_KEY=... webgym track runs/a

    Exit codes: 3, 4, 75.

    See also: webgym report, webgym doctor.
    """
    from webgym_cli.cli.stage import resolve
    from webgym_cli.store.status import lock_run
    from webgym_cli.tracking.execute import plan_tracking, read_pending

    directory, settings = resolve(run, options, required=True)
    output = Output(as_json=options.json)
    plan = plan_tracking(directory, settings)
    facts = {"event": "track", **plan.to_json(), "events": len(read_pending(directory, plan.destination).events)}
    if options.dry_run:
        output.show(facts)
        return
    if not plan.enabled:
        hint = f"env -u WANDB_MODE webgym track {run} -s log_config.tracking=auto"
        raise UsageError(f"{run}: nothing is tracked: {plan.reason}", hint=hint)
    if plan.mode == "offline":
        raise UsageError(
            f"{run}: nothing can be sent: {plan.reason}", hint=f"WANDB_API_KEY=... WANDB_MODE=online webgym track {run}"
        )
    if not directory.metrics.is_file():
        raise MissingStageError(f"{run}: there are no metrics to send", hint=f"webgym rollout {run}")
    with lock_run(directory, f"track {directory.root}"):
        _send(directory, settings)
    output.show(facts)
    if not facts["events"]:
        output.note("all events were sent before")


def _send(run: RunDir, settings: Settings) -> None:
    """Send all pending events. Raises `JobError`."""
    from webgym_cli.jobs.signals import run_async
    from webgym_cli.store.run import new_attempt
    from webgym_cli.tracking.execute import LOG, Tracker

    logs = new_attempt(run)
    tracker = Tracker(run, settings, logs, lambda event: None)

    async def work() -> str:
        try:
            return await tracker.send_all()
        finally:
            await tracker.close(in_time=False)

    if failure := run_async(work()):
        raise JobError(f"Weights & Biases: {failure}; log: {logs / LOG}", hint=f"webgym track {run.root}")
