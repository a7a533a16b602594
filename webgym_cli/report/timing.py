"""Wall time, idle time and cost of a run, from the events of its stages. Pure but for `read_timed_events`.

There are two kinds of idle time. The run is idle while no stage runs. The GPUs are idle while neither a policy acts nor
a trainer trains, for example during server start-up, weight updates, `prepare` and the wait for judgements.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from webgym_cli.records.series import EXPERT
from webgym_cli.records.statistics import ratio
from webgym_cli.records.stored_events import TimedEvent
from webgym_cli.store.metrics import read_events
from webgym_cli.store.run import RunDir

# The stages that write an event, in the order of an iteration.
STAGES = ("evaluation", "survey", "generate", "rollout", "judge", "score", "prepare", "train")
# Events of webgym's own servers: start-up; weight updates and release of the GPUs to the trainer.
START, WEIGHTS = ("serve",), ("swap", "wake", "sleep", "stop")
HOUR = 3600


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Time span of one stage, in seconds since the epoch."""

    stage: str
    iteration: int | None
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Duration in seconds."""
        return self.end - self.start


def read_timed_events(run: RunDir) -> list[TimedEvent]:
    """Return the events of stages and servers by time; events without a valid time are skipped."""
    events = map(TimedEvent.model_validate, read_events(run, *STAGES, *START, *WEIGHTS))
    return sorted((event for event in events if event.at is not None), key=_end_of)


def find_spans(events: Sequence[TimedEvent]) -> list[TimeSpan]:
    """Return the time span of each event that has a duration.

    A training without a duration spans from its dataset's `prepare` to its checkpoint, which a loop runs in a row.
    """
    prepared = {event.model_name: event.at for event in events if event.event == "prepare"}
    spans = []
    for event in events:
        end, seconds = _end_of(event), event.seconds
        if event.event == "train" and seconds is None:
            end = event.created_at or end
            start = prepared.get(event.name)
            seconds = None if start is None else max(0.0, end - start)
        if seconds is not None:
            spans.append(TimeSpan(event.event, event.iteration, end - seconds, end))
    return spans


def measure_timing(events: Sequence[TimedEvent]) -> dict[str, Any]:
    """Return the time of each stage, and the time between the first and last event that no stage covers.

    Times in seconds. A stage whose events have no duration is None, and its time counts as idle. `gpu`: see
    `measure_gpu_idle`; `episode_seconds`: of the episodes' own stages (reset, policy, act, ...), summed.
    """
    every = find_spans(events)
    spans = [span for span in every if span.stage in STAGES]
    ends = [event.at for event in events if event.at is not None]
    first, last = min([*ends, *(span.start for span in every)], default=0.0), max(ends, default=0.0)
    wall, covered = last - first, measure_union(spans)
    idle = max(0.0, wall - covered)
    return {
        "first": _iso(first) if events else None,
        "last": _iso(last) if events else None,
        "wall_seconds": round(wall, 2),
        "idle_seconds": round(idle, 2),
        "idle_share": ratio(idle, wall),
        "gpu": measure_gpu_idle(events, wall),
        "stages": {
            stage: _stage(stage, events, spans) for stage in STAGES if any(event.event == stage for event in events)
        },
        "by_iteration": _by_iteration(spans),
        "episode_seconds": _episode_seconds(events),
    }


def measure_gpu_idle(events: Sequence[TimedEvent], wall: float) -> dict[str, Any]:
    """Return how many of the `wall` seconds the GPUs were busy and idle, and the idle ones by cause.

    A GPU is busy while a policy acts, up to its last episode, and while a training runs. `nothing` is the time that
    no cause covers.
    """
    # Causes overlap (a server starts during `prepare`): each second counts for the first cause that covers it.
    acting, experts, tails = _rollouts(events)
    spans = find_spans(events)

    def of(*names: str) -> list[TimeSpan]:
        return [span for span in spans if span.stage in names]

    layers = {
        "busy": acting + of("train"),
        "server_start": of(*START),
        "new_weights": of(*WEIGHTS),
        "prepare": of("prepare"),
        "judge": tails + of("judge", "score"),
        "new_tasks": of("generate"),
        "expert": experts,
    }
    seconds, taken, reached = {}, list[TimeSpan](), 0.0
    for name, stretches in layers.items():
        taken += stretches
        seconds[name], reached = round(measure_union(taken) - reached, 2), measure_union(taken)
    busy = seconds.pop("busy")
    return {
        "busy_seconds": busy,
        "idle_seconds": round(max(0.0, wall - busy), 2),
        "idle_share": ratio(max(0.0, wall - busy), wall),
        "causes": {**seconds, "nothing": round(max(0.0, wall - reached), 2)},
    }


def compute_cost(times: Mapping[str, Any], gpus: int, price: float | None) -> dict[str, Any]:
    """Return hours, GPU hours and, given the price of a GPU hour, the cost of each stage, of idle time and in total."""

    def of(seconds: float) -> dict[str, float | None]:
        hours = seconds / HOUR
        spent = None if price is None else round(hours * gpus * price, 2)
        return {"hours": round(hours, 4), "gpu_hours": round(hours * gpus, 4), "cost": spent}

    known = {name: stage["seconds"] for name, stage in times["stages"].items() if stage["seconds"] is not None}
    return {
        "gpus": gpus,
        "gpu_hour_price": price,
        "stages": {name: of(seconds) for name, seconds in known.items()},
        "idle": of(times["idle_seconds"]),
        "total": of(times["wall_seconds"]),
    }


def _rollouts(events: Sequence[TimedEvent]) -> tuple[list[TimeSpan], list[TimeSpan], list[TimeSpan]]:
    """Return the spans of policy rollouts, of expert rollouts, and of judge tails (only judgements are pending)."""
    acting, experts, tails = list[TimeSpan](), list[TimeSpan](), list[TimeSpan]()
    for event in (event for event in events if event.event in ("rollout", "survey", "evaluation")):
        for span in find_spans([event]):
            # During the judge tail the policy's GPU is idle although the rollout has not ended.
            tail = min(event.judge_tail_seconds or 0.0, span.seconds)
            # An expert uses no GPU.
            mine = experts if event.policy == EXPERT else acting
            mine.append(replace(span, end=span.end - tail))
            tails.append(replace(span, start=span.end - tail))
    return acting, experts, tails


def _stage(stage: str, events: Sequence[TimedEvent], spans: Sequence[TimeSpan]) -> dict[str, float | None]:
    mine = [span.seconds for span in spans if span.stage == stage]
    return {"times": sum(event.event == stage for event in events), "seconds": round(sum(mine), 2) if mine else None}


def _by_iteration(spans: Iterable[TimeSpan]) -> dict[str, dict[str, float]]:
    """Return seconds by iteration and stage. Spans without an iteration (`webgym judge`) are skipped."""
    sums: dict[int, dict[str, float]] = defaultdict(dict)
    for span in spans:
        if span.iteration is not None:
            stages = sums[span.iteration]
            stages[span.stage] = round(stages.get(span.stage, 0.0) + span.seconds, 2)
    return {
        str(iteration): {stage: stages[stage] for stage in STAGES if stage in stages}
        for iteration, stages in sorted(sums.items())
    }


def _episode_seconds(events: Iterable[TimedEvent]) -> dict[str, float]:
    """Return the total seconds of the episode stages (reset, policy, act, ...) over rollouts and evaluations."""
    sums: dict[str, float] = defaultdict(float)
    for event in events:
        for name, seconds in event.stages.items():
            sums[name] += seconds
    return {name: round(seconds, 3) for name, seconds in sums.items()}


def measure_union(spans: Iterable[TimeSpan]) -> float:
    """Return the length of the union of the spans, in seconds."""
    total, reached = 0.0, -math.inf
    for span in sorted(spans, key=lambda span: span.start):
        total += max(0.0, span.end - max(span.start, reached))
        reached = max(reached, span.end)
    return total


def _end_of(event: TimedEvent) -> float:
    return event.at or 0.0


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")
