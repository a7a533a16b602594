"""Uploads a run's new events to Weights & Biases, in a separate process that may hang, crash or be killed.

    python -P -m webgym_cli.tracking.worker <TrackingPlan as JSON>

Metrics are an event's numbers, and a training's log whose trainer could not reach the server. Only a successful upload
advances the offset in `tracking.json`; the next upload repeats a failed one.
"""

from __future__ import annotations

import io
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from PIL import Image

from webgym_cli.config.model import Settings
from webgym_cli.config.secrets import add_settings_secrets
from webgym_cli.errors import StoreError, WebGymError
from webgym_cli.records.base import is_finite
from webgym_cli.records.series import EXPERT, is_served_elsewhere, name_series
from webgym_cli.records.trajectory import Outcome, Step, Trajectory
from webgym_cli.store.buffer import read
from webgym_cli.store.index.query import open_index
from webgym_cli.store.index.selection import SPLIT_OR_SERVER
from webgym_cli.store.index.spending import read_spending
from webgym_cli.store.metrics import find_trainer_logs, read_trainer_log
from webgym_cli.store.run import RunDir, saved_settings
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.tracking.execute import TrackingPlan, mark_sent, read_pending
from webgym_cli.util.files import read_json
from webgym_cli.util.optional import when
from webgym_cli.util.secrets import add_environment, redact
from webgym_cli.util.text import map_texts

# The steps whose screenshots are columns.
PICTURES = ("first", "middle", "last")
COLUMNS = (
    *("iteration", "id", "task", "instruction", "outcome", "reward", "steps", "stop", "answer", "failure"),
    *PICTURES,
)
# Maximum characters of a text.
TEXT = 2000
# Round robin over the outcomes: one of each, then a second one, ...; the seed determines which.
_CHOICE = """
    row_number() OVER (PARTITION BY failure IS NOT NULL, success ORDER BY md5(concat(?, '/', id)), id),
    failure IS NOT NULL, success DESC NULLS LAST
"""

# Creates a table cell from an image and its caption.
Picture = Callable[[Image.Image, str], Any]
# The step metric (x axis) of all metrics of webgym.
AXIS = "iteration"
# The step metric (x axis) of the trainer's metrics.
TRAINER_AXIS = "train/global_step"
# Keys of LLaMA-Factory's `trainer_log.jsonl` -> the names under which its trainer reports them.
_NAMES = {"loss": "train/loss", "lr": "train/learning_rate", "epoch": "train/epoch", "eval_loss": "eval/loss"}
# The fact of a training that holds metrics under names of their own: those of our own trainer.
_OWN = "metrics"
_NO_METRIC = {"event", "iteration", "split", "solved_cases", "scored_cases", _OWN}
# Facts that are no metric of the event, and those whose names the web makes up.
_LEFT_OUT = frozenset(_NO_METRIC | {"failures_by_site", "skipped_by_site", "skip_reasons", "servers"})
# Facts of a whole training whose names are the trainer's own, by its step.
_RENAMED = {"train/loss": "train/mean_loss", "train/steps": "train/optimizer_steps"}
_BOUNDS = {"interval": ("low", "high")}
# Events with a table of trajectories -> the split that the table is sampled from.
SAMPLED = {"rollout": "train", "evaluation": "test"}
# Events of stages that ask a model.
_SPENDING = {*SAMPLED, "judge", "generate", "generator_tokens"}


def choose_trajectories(run: RunDir, series: str, iteration: int, count: int, seed: int) -> list[Trajectory]:
    """Return at most `count` trajectories with their judgements. Raises `StoreError`.

    `series`: a split, or the series of another server.
    """
    with open_index(run) as index:
        places = index.places(f"{SPLIT_OR_SERVER} = ? AND iteration = ?", [series, iteration, str(seed)], order=_CHOICE)
        return [read(run, place, without=("token_ids", "logprobs")) for place in islice(places, count)]


def build_table_row(trajectory: Trajectory, store: ScreenshotStore, picture: Picture) -> list[Any]:
    """Return the cells of `COLUMNS`; None for a missing image, and for image columns beyond the number of steps."""
    outcome, steps = trajectory.outcome, trajectory.steps
    shown = [steps[0], steps[len(steps) // 2], steps[-1]] if len(steps) > len(PICTURES) else list(steps)
    cells = [_show(step, store, picture) for step in shown]
    return [
        trajectory.iteration,
        trajectory.id,
        trajectory.task.id,
        trajectory.instruction[:TEXT],
        _name_verdict(outcome),
        outcome.reward,
        len(steps),
        outcome.stop and outcome.stop.value,
        (outcome.answer or "")[:TEXT],
        f"{outcome.failure.value}: {outcome.failure_detail}"[:TEXT] if outcome.failure else "",
        *cells,
        *[None] * (len(PICTURES) - len(cells)),
    ]


def _name_verdict(outcome: Outcome) -> str:
    if outcome.failure:
        return "failure"
    if outcome.success is None:
        return "not judged"
    if outcome.success:
        return "solved"
    return "not solved"


def _show(step: Step, store: ScreenshotStore, picture: Picture) -> Any:
    if (shot := step.observation.screenshot) is None:
        return None
    try:
        with Image.open(io.BytesIO(store.get(shot.sha256))) as image:
            pixels = image.convert("RGB")
    except (StoreError, OSError, SyntaxError, ValueError, Image.DecompressionBombError):  # Pillow's for a bad image
        return None
    done = "" if step.action is None else f": {step.action.name}"
    return picture(pixels, f"step {step.index}{done}")


def extract_metrics(event: Mapping[str, Any]) -> dict[str, float]:
    """Return an event's finite numbers, named `<event>/<fact>`, of nested facts `<event>/<fact>/<fact>`."""
    facts = {key: value for key, value in event.items() if key not in _LEFT_OUT}
    named = name_metrics(name_event(event), facts)
    own: dict[str, float] = event.get(_OWN, {})
    return {_RENAMED.get(name, name): value for name, value in named.items()} | own


def name_metrics(name: str, facts: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of facts, named `<name>/<fact>`, of nested facts `<name>/<fact>/<fact>`."""
    return {f"{name}/{fact}": value for fact, value in _numbers(facts)}


def name_event(event: Mapping[str, Any]) -> str:
    """Return the first part of an event's metric names; results of another server or an expert have their own."""
    policy = event.get("policy")
    other = when(isinstance(policy, str) and (policy == EXPERT or is_served_elsewhere(policy)), [policy])
    return "/".join(map(_clean, [event["event"], *other]))


def _numbers(facts: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in facts.items():
        name = _clean(key)
        if isinstance(value, dict):
            yield from ((f"{name}/{inner}", number) for inner, number in _numbers(value) if key not in _LEFT_OUT)
        elif isinstance(value, list) and len(value) == len(bounds := _BOUNDS.get(key, ())):
            yield from _numbers({f"{name}_{bound}": number for bound, number in zip(bounds, value, strict=True)})
        elif is_finite(value):
            yield name, value


def _clean(name: str) -> str:
    """Replace the characters that are special in wandb's metric names."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name)


def read_offline_curve(run: RunDir, training: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield (step, metrics) of each logged step; nothing if the trainer reported online, or not at all."""
    for log in find_trainer_logs(run, str(training.get("name"))):
        if not any(log.parent.glob("wandb/offline-run-*")):
            continue
        for line in read_trainer_log(log):
            numbers = {name: line.get(key) for key, name in _NAMES.items()}
            metrics = {name: float(value) for name, value in numbers.items() if isinstance(value, int | float)}
            if metrics.keys() & {"train/loss", "eval/loss"}:  # the last line is a summary without metrics
                yield line["current_steps"], metrics


if TYPE_CHECKING:
    from wandb import Run


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
    try:
        with open_index(run) as index:
            return name_metrics("spent", read_spending(run, settings, index))
    except WebGymError as error:
        logging.getLogger(__name__).warning("no spending: %s", error)
        return {}


def _table(plan: TrackingPlan, event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an iteration's table of sample trajectories by name; empty if the buffer is damaged."""
    import wandb

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
