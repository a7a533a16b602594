"""The timeline of an asynchronous loop: busy and idle times of the policy server and the trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from webgym_cli.records.stored_events import TimedEvent
from webgym_cli.report.charts import draw_timeline, format_percent
from webgym_cli.report.figures import Figure, Table
from webgym_cli.report.timing import TimeSpan, find_spans, merge_spans, subtract_spans
from webgym_cli.store.index.query import Index
from webgym_cli.util.text import format_duration

_EPISODES = """
SELECT epoch(started_at) AS began, epoch(started_at) + seconds AS ended FROM stored
WHERE iteration >= ? AND series <> 'demonstrations' ORDER BY began
"""
# Events of a server that releases its GPUs to the trainer, and of one that has them back.
_AWAY, _BACK = ("sleep", "stop"), ("wake", "serve")


class LaneFacts(TypedDict):
    """Busy times of the server or the trainer, in seconds."""

    at_work: float
    idle: float
    idle_share: float | None
    spans: list[list[float]]
    """Start and end of each stretch of work, since the timeline's start."""


def read_lanes(index: Index, events: Sequence[TimedEvent], first: int) -> dict[str, LaneFacts]:
    """Return the lanes `server` and `trainer` from the windows and trainings of version `first` on; empty without any.

    The server is busy while an episode is running, except while it loads weights or sleeps for the trainer.
    """
    episodes = [TimeSpan("", None, row["began"], row["ended"]) for row in index.rows(_EPISODES, [first])]
    trainings = [
        span
        for span in find_spans(events)
        if span.stage == "train" and span.iteration is not None and span.iteration >= first
    ]
    work = {"server": subtract_spans(episodes, _find_absences(events)), "trainer": merge_spans(trainings)}
    every = [span for spans in work.values() for span in spans]
    if not every:
        return {}
    start, end = min(span.start for span in every), max(span.end for span in every)
    return {name: _measure_lane(spans, start, end) for name, spans in work.items()}


def _find_absences(events: Sequence[TimedEvent]) -> list[TimeSpan]:
    """Return the intervals without a server: weight updates, and sleep until wake-up."""
    absences, since = list[TimeSpan](), None
    for span in sorted(find_spans(events), key=lambda span: span.end):
        if span.stage == "swap":
            absences.append(span)
        elif span.stage in _AWAY:
            since = span.start if since is None else since
        elif span.stage in _BACK and since is not None:
            absences.append(TimeSpan("", None, since, span.end))
            since = None
    return absences


def _measure_lane(spans: Sequence[TimeSpan], start: float, end: float) -> LaneFacts:
    worked, whole = sum(span.seconds for span in spans), end - start
    idle = max(0.0, whole - worked)
    return {
        "at_work": round(worked, 2),
        "idle": round(idle, 2),
        "idle_share": round(idle / whole, 4) if whole else None,
        "spans": [[round(span.start - start, 2), round(span.end - start, 2)] for span in spans],
    }


def build_timeline(lanes: Mapping[str, LaneFacts]) -> Figure:
    """Return the figure of the lanes with the idle share of each."""
    title = "Server and trainer"
    names = {name: f"{name}, idle {format_percent(lane['idle_share'])}" for name, lane in lanes.items()}
    svg = draw_timeline(title, {names[name]: lane["spans"] for name, lane in lanes.items()}, format_duration)
    rows = tuple(
        (name, format_duration(lane["at_work"]), format_duration(lane["idle"]), format_percent(lane["idle_share"]))
        for name, lane in lanes.items()
    )
    return Figure(title, Table(("", "at work", "idle", "idle share"), rows), svg=svg)
