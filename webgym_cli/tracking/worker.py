"""Uploads a run's new events to Weights & Biases, in a separate process that may hang, crash or be killed.

    python -P -m webgym_cli.tracking.worker <TrackingPlan as JSON>

Only a successful upload advances the offset in `tracking.json`; the next upload repeats a failed one.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from webgym_cli.config.model import Settings
from webgym_cli.config.secrets import add_settings_secrets
from webgym_cli.errors import WebGymError
from webgym_cli.records.series import is_served_elsewhere, name_series
from webgym_cli.store.run import RunDir, saved_settings
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.tracking.metrics import (
    AXIS,
    TRAINER_AXIS,
    extract_metrics,
    name_event,
    name_metrics,
    read_offline_curve,
)
from webgym_cli.tracking.pending import mark_sent, read_pending
from webgym_cli.tracking.plan import TrackingPlan
from webgym_cli.util.files import read_json
from webgym_cli.util.secrets import add_environment, redact
from webgym_cli.util.text import map_texts

if TYPE_CHECKING:
    from wandb import Run

# Events with a table of trajectories -> the split that the table is sampled from.
SAMPLED = {"rollout": "train", "evaluation": "test"}
# Events of stages that ask a model.
_SPENDING = {*SAMPLED, "judge", "generate", "generator_tokens"}


def send(plan: TrackingPlan) -> None:
    """Upload the pending events. In online mode, returns once the server has all of them; otherwise wandb raises."""
    import wandb

    run = RunDir(plan.root)
    settings = saved_settings(run)
    add_environment()
    add_settings_secrets(settings)
    pending = read_pending(run, plan.destination)
    named: dict[str, Any] = {"id": plan.id, "project": plan.project, "entity": plan.entity or None, "name": plan.name}
    if plan.mode == "online":  # in offline mode the run's state on the server is unknown
        named["resume"] = "allow"
    config = {"webgym": map_texts(read_json(run.config), redact)}
    with wandb.init(**named, config=config, allow_val_change=True) as session:
        iteration = pending.iteration
        for event in pending.events:
            iteration = event.get("iteration", iteration)  # judge events have none: the previous one counts
            metrics: dict[str, Any] = dict(extract_metrics(event))
            if plan.samples and event["event"] in SAMPLED:
                metrics |= _table(plan, event)
            if event is pending.events[-1] and _SPENDING.intersection(of["event"] for of in pending.events):
                metrics |= _measure_spending(run, settings)
            _log(session, AXIS, iteration, metrics)
            if plan.mode == "online" and event["event"] == "train":
                for step, curve in read_offline_curve(run, event):
                    _log(session, TRAINER_AXIS, step, curve)
    mark_sent(run, plan.destination, pending.end)


def _log(session: Run, axis: str, place: int, metrics: dict[str, Any]) -> None:
    """Log metrics at step `place` of the step metric `axis`."""
    session.define_metric(axis)
    for name in metrics:  # defined by name, because the trainer defines the rest by `*`
        session.define_metric(name, step_metric=axis)
    session.log({axis: place, **metrics})


def _measure_spending(run: RunDir, settings: Settings) -> dict[str, float]:
    """Return what the run has spent so far, `spent/<fact>`; empty if the buffer is damaged."""
    from webgym_cli.store.index.query import open_index
    from webgym_cli.store.index.spending import read_spending

    try:
        with open_index(run) as index:
            return name_metrics("spent", read_spending(run, settings, index))
    except WebGymError as error:
        logging.getLogger(__name__).warning("no spending: %s", error)
        return {}


def _table(plan: TrackingPlan, event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an iteration's table of sample trajectories by name; empty if the buffer is damaged."""
    import wandb

    from webgym_cli.tracking.samples import COLUMNS, build_table_row, choose_trajectories

    run = RunDir(plan.root)
    store = ScreenshotStore(run.screenshots)
    try:
        split, policy = SAMPLED[event["event"]], str(event.get("policy"))
        series = name_series(policy, split) if is_served_elsewhere(policy) else split
        chosen = choose_trajectories(run, series, event["iteration"], plan.samples, plan.seed)
    except WebGymError as error:
        logging.getLogger(__name__).warning("no table of samples: %s", error)
        return {}
    rows = [
        build_table_row(trajectory, store, lambda image, caption: wandb.Image(image, caption=caption))
        for trajectory in chosen
    ]
    rows = map_texts(rows, redact)
    return {f"{name_event(event)}/samples": wandb.Table(columns=list(COLUMNS), data=rows, allow_mixed_types=True)}


if __name__ == "__main__":
    send(TrackingPlan.model_validate_json(sys.argv[1]))
