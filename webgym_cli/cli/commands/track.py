"""`webgym track`."""

from __future__ import annotations

from webgym_cli.cli.options import ConfigOpt, DryRunOpt, JsonOpt, RunArg, SetOpt
from webgym_cli.cli.output import Output
from webgym_cli.errors import JobError, UsageError


def track(
    run: RunArg, config: ConfigOpt = None, set_: SetOpt = None, json: JsonOpt = False, dry_run: DryRunOpt = False
) -> None:
    """Send to Weights & Biases the events that it lacks.

    Every command on a run does so by itself, as far as it can without waiting. This one waits until all is sent: events
    of RUN/metrics.jsonl, tables of trajectories, and the curves of trainings that were kept offline. For a run of a
    machine without network, copy its folder to one that has it.

    Examples:
      webgym track runs/a --dry-run
      WANDB_API_KEY=... webgym track runs/a

    Exit codes: 3, 4, 75.

    See also: webgym report, webgym doctor.
    """
    from webgym_cli.cli.stage import resolve
    from webgym_cli.jobs.signals import run_async
    from webgym_cli.store.lock import lock_run
    from webgym_cli.store.run import new_attempt, open_run
    from webgym_cli.tracking.execute import LOG, Tracker
    from webgym_cli.tracking.pending import read_pending
    from webgym_cli.tracking.plan import plan_tracking

    open_run(run)
    directory, settings = resolve(run, config, set_)
    output = Output(as_json=json)
    plan = plan_tracking(directory, settings)
    facts = {"event": "track", **plan.to_json(), "events": len(read_pending(directory, plan.destination).events)}
    if dry_run:
        output.show(facts)
        return
    if not plan.enabled:
        raise UsageError(f"{run}: nothing is tracked: {plan.reason}", hint=f"webgym track {run} --dry-run")
    with lock_run(directory, f"track {directory.root}"):
        logs = new_attempt(directory)
        tracker = Tracker(directory, settings, logs, lambda event: None)

        async def work() -> str:
            try:
                return await tracker.send_all()
            finally:
                await tracker.close(in_time=False)

        if failure := run_async(work()):
            raise JobError(f"Weights & Biases: {failure}; log: {logs / LOG}", hint=f"webgym track {run}")
    output.show(facts)
