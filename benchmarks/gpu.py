"""What a training step takes on a GPU, with published models' shapes and random weights. See `benchmarks/README.md`.

python -m benchmarks.gpu            all models, whole and with an adapter; names what became slower since the baseline
python -m benchmarks.gpu --save     the same, and the rows become the baseline of this kind of GPU
python -m benchmarks.gpu --seconds 270    what fits into the time, most important first, each side once
python -m benchmarks.gpu --quick    tiny shapes, once; without a GPU on the CPU

It needs torch, transformers, pydantic and peft. An interpreter with torch trains itself, else the train role's does.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.gpu_cases import QUICK, WHOLE, Device, Measurement
from benchmarks.harness import ROOT, Row, machine, reported, say
from benchmarks.rl_bench import Bench

NAME = "gpu"
BASELINES = Path(__file__).parent / "baselines"
SLOWER = 0.9
"""A ratio to the baseline below this is named."""


def baseline_file(device: Device) -> Path:
    """Return where the rows of this kind of GPU are kept."""
    return BASELINES / f"{(device.name or 'cpu').lower().replace(' ', '-')}.json"


def save(file: Path, rows: Sequence[Row], device: Device) -> None:
    """Keep rows as they are printed as the baseline, with date and commit."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT)
    fields = {
        "gpu": device.name,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit.stdout.strip(),
        "rows": [row.to_json(NAME, machine()) for row in rows],
    }
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")


def regressions(file: Path, rows: Sequence[Row]) -> list[str]:
    """Return a line for each figure that is worse than the baseline's; none without a baseline."""
    if not file.is_file():
        return []
    record = json.loads(file.read_text(encoding="utf-8"))
    before = {(row["case"], row["metric"]): row["value"] for row in record["rows"]}
    worse = []
    for row in rows:
        was, now = before.get((row.case, row.metric)), row.values.median
        ratio = None if was is None else now / was if row.higher_is_better else was / now
        if ratio is not None and ratio < SLOWER:
            worse.append(f"{row.case} {row.metric}: {now:.4g}, was {was:.4g} on {record['date']} ({record['commit']})")
    return worse


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="What a training step takes.")
    parser.add_argument("--quick", action="store_true", help="tiny shapes, once")
    parser.add_argument("--repeats", type=int, help="processes of each side (default: 3)")
    parser.add_argument("--model", action="append", choices=tuple(WHOLE.models), help="only this one; repeatable")
    parser.add_argument("--seconds", type=float, help="end after so long; each side runs once")
    parser.add_argument("--save", action="store_true", help="keep the rows as this GPU's baseline")
    parser.add_argument("--folder", type=Path, help="where models are made (default: the temporary folder)")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Run what was asked for: rows as JSON on stdout, a table and progress on stderr; 1 where something is slower."""
    args, rows, devices, failed = _arguments(words), list[Row](), list[Device](), list[str]()
    until = time.monotonic() + args.seconds if args.seconds else None
    sizes = QUICK if args.quick else WHOLE
    if args.model and not args.quick:
        sizes = replace(sizes, models={name: sizes.models[name] for name in args.model})
    sizes = replace(sizes, repeats=args.repeats or (1 if args.seconds else sizes.repeats))

    def measure(folder: Path) -> list[Row]:
        bench = Bench(folder, sizes.steps, sizes.repeats, until)
        result = bench.job({"what": "models", "models": [], "dtype": "float32"}, gpu=True)
        devices.append(Device(result["gpu"], result["memory"]))
        if not result["gpu"] and not args.quick:
            say("no GPU in the train role: --quick runs tiny shapes on the CPU")
            return []
        measurement = Measurement(bench, sizes, devices[0], failed)
        rows.extend(measurement.rows())
        return rows

    status = reported(NAME, measure, args.folder)
    if status or not rows or args.quick:
        return status or bool(failed)
    file = baseline_file(devices[0])
    worse = regressions(file, rows)
    for line in worse:
        say(f"slower: {line}")
    if args.save:
        save(file, rows, devices[0])
    return 1 if worse or failed else 0


if __name__ == "__main__":
    sys.exit(main())
