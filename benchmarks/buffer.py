"""How the replay buffer scales: against loading everything, and as it grows. See `benchmarks/README.md`.

python -m benchmarks.buffer            up to 1,000,000 steps: about 25 minutes and 12 GB of disk
python -m benchmarks.buffer --quick    up to 10,000 steps, within a minute
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.buffer_data import ITERATIONS, SETTINGS, STEPS, fill, fill_pickles, pictures
from benchmarks.harness import Row, Series, program, reported, say
from webgym_cli.config.load import load
from webgym_cli.testing.tiny_model import build_tiny_model

NAME = "buffer"
SAMPLES = 1800
"""WebGym's default."""
BASELINE = "load everything"
_SECONDS, _PEAK, _FASTER, _SMALLER = 5.0, 500.0, 20.0, 8.0
"""What `prepare` may take, and how much better than the baseline a draw must be."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is run."""

    steps: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    """Steps of the buffers."""
    compared: int = 100_000
    """The size at which both sides draw."""
    repeats: int = 3
    judged: bool = True
    """Whether the targets are for figures of this size."""


QUICK = Sizes(steps=(2_000, 10_000), compared=10_000, repeats=1, judged=False)


def measured(folder: Path, sizes: Sizes) -> list[Row]:
    """Make each buffer, measure it, remove it."""
    model = build_tiny_model(folder / "model", load())
    shots = pictures(folder / "screenshots")
    rows: list[Row] = []
    for steps in sizes.steps:
        say(f"{steps} steps: making the buffer")
        root = folder / f"run-{steps}"
        run = fill(root, steps, model, folder / "screenshots", shots)
        rows += indexing(root, steps)
        rows += preparing(root, steps, sizes)
        rows += viewing(root, steps, sizes)
        if steps == sizes.compared:
            say(f"{steps} steps: the same as pickles")
            fill_pickles(folder / "pickles", run, steps, shots)
            rows += drawing(folder, root, steps, sizes)
        shutil.rmtree(root)
    return rows


def indexing(root: Path, steps: int) -> list[Row]:
    """Measure how fast the index is built from nothing."""
    say(f"{steps} steps: index")
    result = program("buffer_job", {"run": str(root), "what": "index"})
    truth, index = (_bytes(root.glob(pattern)) for pattern in ("train_trajectories/*/*.jsonl", "index.parquet/**/*"))
    inputs = {**_inputs(steps), "truth_mb": round(truth / 2**20), "index_mb": round(index / 2**20, 1)}
    rate = Series((truth / 2**20 / result["seconds"],))
    return [
        Row(_case(steps), "index_mb_per_s", rate, higher_is_better=True, inputs=inputs),
        Row(
            _case(steps),
            "index_steps_per_s",
            Series((steps / result["seconds"],)),
            higher_is_better=True,
            inputs=inputs,
        ),
        Row(_case(steps), "index_peak_mb", Series((result["peak_mb"],)), inputs=inputs),
    ]


def preparing(root: Path, steps: int, sizes: Sizes) -> list[Row]:
    """Measure the whole stage, when the index is there."""
    say(f"{steps} steps: prepare")
    results = [program("buffer_job", {"run": str(root), "what": "prepare"}) for _ in range(sizes.repeats + 1)][1:]
    inputs = {**_inputs(steps), "samples": results[0]["samples"], "eligible_steps": results[0]["eligible"]}
    targets = {"seconds": _SECONDS, "peak_mb": _PEAK} if sizes.judged else {}
    return [
        Row(
            _case(steps),
            f"prepare_{metric}",
            Series(tuple(result[metric] for result in results)),
            target=targets.get(metric),
            inputs=inputs,
        )
        for metric in ("seconds", "peak_mb")
    ]


def viewing(root: Path, steps: int, sizes: Sizes) -> list[Row]:
    """Measure the viewer's start and its filter beside the report, when the index is there."""
    say(f"{steps} steps: view")
    turns = [
        [program("buffer_job", {"run": str(root), "what": what}) for what in ("view", "report")]
        for _ in range(sizes.repeats + 1)
    ][1:]
    inputs = {**_inputs(steps), "found": turns[0][0]["found"]}
    report = Series(tuple(report["seconds"] for _, report in turns))
    return [
        Row(
            _case(steps),
            f"view_{name}_seconds",
            Series(tuple(view[name] for view, _ in turns)),
            "report",
            report,
            inputs=inputs,
        )
        for name in ("open", "filter")
    ]


def drawing(folder: Path, root: Path, steps: int, sizes: Sizes) -> list[Row]:
    """Compare the draw alone with one that loads everything, alternately."""
    ours: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    for number in range(sizes.repeats):
        say(f"{steps} steps: draw, repeat {number + 1} of {sizes.repeats}")
        out = str(folder / "drawn.json")
        ours.append(program("buffer_job", {"run": str(root), "what": "draw", "out": out}))
        job = {"folder": str(folder / "pickles"), "samples": SAMPLES, "out": out}
        theirs.append(program("buffer_baseline", job))
    inputs = {
        **_inputs(steps),
        "samples": [ours[0]["samples"], theirs[0]["samples"]],
        "eligible_steps": [ours[0]["eligible"], theirs[0]["eligible"]],
    }
    targets = {"seconds": _FASTER, "peak_mb": _SMALLER} if sizes.judged else {}
    return [
        Row(
            _case(steps),
            f"draw_{metric}",
            Series(tuple(result[metric] for result in ours)),
            BASELINE,
            Series(tuple(result[metric] for result in theirs)),
            target=targets.get(metric),
            inputs=inputs,
        )
        for metric in ("seconds", "peak_mb")
    ]


def _case(steps: int) -> str:
    return f"{steps:,} steps"


def _inputs(steps: int) -> dict[str, Any]:
    return {
        "steps": steps,
        "trajectories": steps // STEPS,
        "iterations": ITERATIONS,
        "settings": SETTINGS,
        "wanted": SAMPLES,
    }


def _bytes(paths: Any) -> int:
    return sum(path.stat().st_size for path in paths if path.is_file())


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.buffer", description="How the replay buffer scales.")
    parser.add_argument("--quick", action="store_true", help="small buffers, within a minute")
    parser.add_argument("--steps", type=int, action="append", help="only buffers of so many steps; repeatable")
    parser.add_argument("--folder", type=Path, help="where the buffers are made (default: the temporary folder)")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Run what was asked for: rows as JSON on stdout, a table and progress on stderr."""
    args = _arguments(words)
    sizes = QUICK if args.quick else Sizes()
    if args.steps:
        sizes = replace(sizes, steps=tuple(args.steps))
    return reported(NAME, lambda folder: measured(folder, sizes), args.folder)


if __name__ == "__main__":
    sys.exit(main())
