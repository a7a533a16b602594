"""Snapshots of a rollout's counters, with merged timings of several processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from webgym_cli.agent.client.reply import ServerCounters
from webgym_cli.records.base import moment_of
from webgym_cli.records.statistics import wilson
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.monitoring.latency import Histogram

# Maximum number of running episodes listed (the oldest); the others are only counted.
RUNNING = 100
# Maximum number of sites listed with their failures (those with the most).
SITES = 50


def complete(counted: dict[str, Any]) -> dict[str, Any]:
    """Return the counters with the values derived from them.

    `done` of `total` episodes have a final trajectory; `success_rate` and its 95 % `interval` cover this command's
    episodes with a known reward; `eta` is in seconds, None if the rate is 0.
    """
    known, successes = counted["known"], counted["successes"]
    before = counted["total"] - counted["given_up"] - counted["owed"]
    done = before + counted["collected"] - counted["withdrawn"]
    left = max(0, counted["total"] - counted["given_up"] - counted["skipped"] - done)
    low, high = wilson(successes, known)
    pace = counted["episodes_per_second"]
    return {
        **counted,
        "done": done,
        "success_rate": round(successes / known, 4) if known else None,
        "interval": [round(low, 4), round(high, 4)],
        "eta": 0.0 if not left else round(left / pace, 1) if pace else None,
    }


def merge_timings(timings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge the timings (`StageTimer.to_json`) of several processes; quantiles are those of the merged histograms."""
    return {
        "steps_per_second": round(sum(timing["steps_per_second"] for timing in timings), 5),
        "stages": _stages([timing["stages"] for timing in timings]),
        "running": sum(timing["running"] for timing in timings),
        "episodes": oldest([episode for timing in timings for episode in timing["episodes"]]),
    }


def idle_timings(timings: dict[str, Any]) -> dict[str, Any]:
    """Return the timings of a process that has ended: no running episodes, no rate, no open requests."""
    stages = {name: {**stage, "now": 0} for name, stage in timings["stages"].items()}
    servers = {address: {**facts, "outstanding": 0, "open": 0} for address, facts in timings["servers"].items()}
    return {**timings, "running": 0, "episodes": [], "stages": stages, "servers": servers, "steps_per_second": 0.0}


def end_snapshot(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return the final snapshot of an ended rollout: no running episodes, average step rate."""
    pace = round(snapshot["steps"] / max(1.0, snapshot["elapsed"]), 2)
    still = {"queues": {}, "episodes_per_second": 0.0, "steps_per_second": pace}
    return complete({**idle_timings(snapshot), **still})


def recount(snapshot: dict[str, Any], stored: Iterable[Trajectory]) -> dict[str, Any]:
    """Return the snapshot of a rollout that ended without its last one, with the numbers of what it has stored.

    A full disk or SIGKILL prevents the last one. `stored`: all trajectories of the iteration.
    """
    began = moment_of(snapshot["started_at"])
    mine = [trajectory for trajectory in stored if moment_of(trajectory.started_at) >= began]
    rewards = [trajectory.outcome.success for trajectory in mine if trajectory.outcome.success is not None]
    failures = Counter(trajectory.outcome.failure.value for trajectory in mine if trajectory.outcome.failure)
    finished = len(mine) - failures.total()
    counted = {
        "collected": finished,
        "steps": sum(len(trajectory.steps) for trajectory in mine),
        "known": len(rewards),
        "successes": sum(rewards),
        "unjudged": finished - len(rewards),
        "failures": dict(sorted(failures.items())),
    }
    return {**snapshot, **counted}


def without_buckets(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return the snapshot without histogram buckets, which only `merge_timings` needs."""

    def lean(value: dict[str, Any]) -> dict[str, Any]:
        return {key: item for key, item in value.items() if key != "buckets"}

    stages = {name: {**lean(stage), "recent": lean(stage["recent"])} for name, stage in snapshot["stages"].items()}
    return {**snapshot, "stages": stages}


def oldest(episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the `RUNNING` oldest running episodes, oldest first."""
    return sorted(episodes, key=lambda episode: -episode["age"])[:RUNNING]


def top_sites(failures: dict[str, Counter[str]]) -> dict[str, dict[str, int]]:
    """Return the failures by kind of the `SITES` sites with the most failures."""
    order = sorted(failures.items(), key=lambda item: (-item[1].total(), item[0]))
    return {site: dict(kinds.most_common()) for site, kinds in order[:SITES]}


def merge_servers(counts: list[ServerCounters]) -> ServerCounters:
    """Return the summed request counters of several processes, by server."""
    total: ServerCounters = {}
    for counters in counts:
        for address, facts in counters.items():
            mine = total.setdefault(address, dict.fromkeys(facts, 0))
            mine.update({name: round(mine[name] + value, 2) for name, value in facts.items()})
    return total


def _stages(stages: list[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    names = dict.fromkeys(name for stage in stages for name in stage)
    return {name: _stage([stage[name] for stage in stages if name in stage]) for name in names}


def _stage(parts: list[dict[str, Any]]) -> dict[str, Any]:
    overall, recent = Histogram(), Histogram()
    for part in parts:
        overall.merge(Histogram.from_json(part))
        recent.merge(Histogram.from_json(part["recent"]))
    return {"now": sum(part["now"] for part in parts), **overall.to_json(), "recent": recent.to_json()}
