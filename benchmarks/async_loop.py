"""What asynchronous training saves: makespan of a loop against taking turns. See `benchmarks/README.md`.

python -m benchmarks.async_loop                       32 slots, batches of 128, trainings of 15 s and 60 s
python -m benchmarks.async_loop --factor 0.25 --slots 16 --batch 64
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, Series, program, reported, say

NAME = "async_loop"
SEED = 7


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to run the loop."""

    name: str
    mode: str = "async"
    bound: int = 1
    stale: str = "wait"
    sliced: bool = False
    threshold: float = 1.0


TURNS = Arm("turns", mode="sync")
ARMS = (
    Arm("turns, completion_threshold 0.8", mode="sync", threshold=0.8),
    Arm("bound 0", bound=0),
    Arm("bound 1"),
    Arm("bound 2", bound=2),
    Arm("bound 1, drop", stale="drop"),
    Arm("bound 1, time-sliced", sliced=True),
)
TARGETS = {("bound 1", 15.0): 1.6, ("bound 1", 60.0): 1.6, ("bound 1, time-sliced", 15.0): 1.15}
"""Makespan in turns over the arm's, with 32 slots and batches of 128."""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=32, help="episodes that run at once")
    parser.add_argument("--batch", type=int, default=128, help="episodes of a batch")
    parser.add_argument("--updates", type=int, default=6, help="trainings")
    parser.add_argument("--training", type=float, action="append", help="seconds of a training; repeatable (15, 60)")
    parser.add_argument("--factor", type=float, default=1.0, help="what all waits are multiplied by")
    parser.add_argument("--arm", action="append", choices=[arm.name for arm in ARMS], help="only these; repeatable")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=4, help="loops at once: they mostly wait")
    given = parser.parse_args()
    return reported(NAME, lambda folder: list(_measure(given, folder)))


def _measure(given: argparse.Namespace, folder: Path) -> Iterator[Row]:
    model = folder / "model"
    subprocess.run(
        [sys.executable, "-m", "webgym_cli", "init-model", "tiny", str(model)], check=True, capture_output=True
    )
    arms = [TURNS, *(arm for arm in ARMS if not given.arm or arm.name in given.arm)]
    trainings = given.training or [15.0, 60.0]
    cases = [(arm, seconds, repeat) for seconds in trainings for arm in arms for repeat in range(given.repeats)]
    with ThreadPoolExecutor(given.jobs) as pool:
        measured = dict(zip(cases, pool.map(lambda case: _run(given, str(model), *case), cases), strict=True))
    for seconds in trainings:
        for arm in arms[1:]:
            ours = [measured[arm, seconds, repeat] for repeat in range(given.repeats)]
            turns = [measured[TURNS, seconds, repeat] for repeat in range(given.repeats)]
            yield _row(given, arm, seconds, ours, turns)
        for arm in arms:
            say(f"training {seconds:g} s, {arm.name}: {_facts(measured[arm, seconds, 0])}")


def _run(given: argparse.Namespace, model: str, arm: Arm, seconds: float, repeat: int) -> dict[str, Any]:
    job = {
        "model": model,
        "slots": given.slots,
        "batch": given.batch,
        "updates": given.updates,
        "training": seconds,
        "factor": given.factor,
        "mode": arm.mode,
        "bound": arm.bound,
        "stale": arm.stale,
        "sliced": arm.sliced,
        "threshold": arm.threshold,
        "seed": SEED + repeat,
    }
    return program("async_job", job)


def _row(
    given: argparse.Namespace, arm: Arm, seconds: float, ours: list[dict[str, Any]], turns: list[dict[str, Any]]
) -> Row:
    usual = (given.slots, given.batch, given.factor) == (32, 128, 1.0)
    return Row(
        case=f"training {seconds:g} s, {arm.name}",
        metric=f"seconds to version {given.updates}",
        values=Series(tuple(one["makespan"] for one in ours)),
        baseline=TURNS.name,
        baseline_values=Series(tuple(one["makespan"] for one in turns)),
        target=TARGETS.get((arm.name, seconds)) if usual else None,
        inputs={**vars(given), "facts": ours[0], "baseline_facts": turns[0]},
    )


def _facts(rows: dict[str, Any]) -> str:
    return (
        f"{rows['makespan']:.1f} s, CPU {rows['cpu']:.0f} s, trained {rows['trained']}, begun and unused "
        f"{rows['unused']}, trainer idle {rows['trainer_idle']:.0%}, slots idle {rows['slots_idle']:.0%}, "
        f"staleness at most {rows['max_staleness']}"
    )


if __name__ == "__main__":
    sys.exit(main())
