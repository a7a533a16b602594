"""Snapshots of a rollout's counters (JSON), with merged timings of several processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from webgym_cli.records.statistics import wilson
from webgym_cli.rollout.latency import Histogram

if TYPE_CHECKING:  # `webgym status` needs none of it
    from webgym_cli.agent.client.reply import ServerCounters

# Maximum number of running episodes listed (the oldest); the others are only counted.
RUNNING = 100


def complete(counted: dict[str, Any]) -> dict[str, Any]:
    """Return the counters with the values derived from them.

    `done` of `total` episodes have a final trajectory; `success_rate` and its 95 % `interval` cover this command's
    episodes with a known reward; `eta` is in seconds, None before the first episode has ended.
    """
    known, successes, collected = counted["known"], counted["successes"], counted["collected"]
    wanted = counted["total"] - counted["given_up"]
    done = wanted - counted["owed"] + collected - counted["withdrawn"]
    left = max(0, wanted - counted["skipped"] - done)
    eta = round(left * counted["elapsed"] / collected, 1) if left and collected > 0 else None
    return {
        **counted,
        "done": done,
        "success_rate": round(successes / known, 4) if known else None,
        "interval": [round(bound, 4) for bound in wilson(successes, known)],
        "eta": eta if left else 0.0,
    }


def merge_timings(timings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge the timings (`StageTimer.timings`) of several processes; quantiles are those of the merged histograms."""
    stages = {name: Histogram() for name in timings[0]["stages"]}
    for timing in timings:
        for name, latencies in timing["stages"].items():
            stages[name].merge(latencies)
    return {
        "stages": {name: latencies.to_json() for name, latencies in stages.items()},
        "running": sum(timing["running"] for timing in timings),
        "episodes": oldest([episode for timing in timings for episode in timing["episodes"]]),
    }


def merge_servers(counts: Sequence[ServerCounters]) -> ServerCounters:
    """Return the summed request counters of several processes, by server."""
    total: ServerCounters = {}
    for counters in counts:
        for address, facts in counters.items():
            mine = total.setdefault(address, dict.fromkeys(facts, 0))
            mine.update({name: round(mine[name] + value, 2) for name, value in facts.items()})
    return total


def oldest(episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the `RUNNING` oldest running episodes, oldest first."""
    return sorted(episodes, key=lambda episode: -episode["age"])[:RUNNING]


def idle_timings(timings: dict[str, Any]) -> dict[str, Any]:
    """Return the timings of a process that has ended: no running episodes, no open requests."""
    stages = {name: replace(latencies, running=0) for name, latencies in timings["stages"].items()}
    servers = {address: {**facts, "outstanding": 0, "open": 0} for address, facts in timings["servers"].items()}
    return {**timings, "running": 0, "episodes": [], "stages": stages, "servers": servers}
