"""How long a command takes to answer. See `benchmarks/README.md`.

python -m benchmarks.cli            each command 21 times, within a minute
python -m benchmarks.cli --quick    5 times
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer.main

from benchmarks.harness import ROOT, Row, Series, reported, say
from tests.cli.runs import filled
from webgym_cli.cli.app import build_app
from webgym_cli.config.load import load
from webgym_cli.store.run import RunDir, create_or_open

NAME = "cli"
BASELINE = "bare Typer app"
# The time of the bare app's help as a share of a command's, at least.
_TARGETS = {
    "webgym --help": 1 / 2,
    "webgym status": 1 / 3,
    "webgym inspect-buffer": 1 / 8,
    "webgym train --dry-run": 1 / 3.15,
}
_LIMIT = 60.0
_WEBGYM = (sys.executable, "-m", "webgym_cli")


def measured(folder: Path, repeats: int) -> list[Row]:
    """Run each command by turns with the others, after one run that nobody counts."""
    run = RunDir(folder / "run")
    create_or_open(run, load())
    prepared = prepare_training(folder / "prepared")
    number = commands()
    calls: dict[str, Sequence[str]] = {
        "webgym --help": (*_WEBGYM, "--help"),
        BASELINE: (sys.executable, "-m", "benchmarks.cli_bare", str(number), "--help"),
        "webgym rollout --help": (*_WEBGYM, "rollout", "--help"),
        "webgym status": (*_WEBGYM, "status", str(run.root)),
        "webgym inspect-buffer": (*_WEBGYM, "inspect-buffer", str(run.root)),
        "webgym train --dry-run": (*_WEBGYM, "train", *prepared, "--dry-run"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 1):
        say(f"turn {turn} of {repeats}")
        for name, call in calls.items():
            taken = timed(call)
            if turn:
                seconds[name].append(taken)
    inputs = {"commands": number, "run": "empty"}
    bare = Series(tuple(seconds.pop(BASELINE)))
    return [_row(name, Series(tuple(values)), bare, inputs) for name, values in seconds.items()]


def prepare_training(folder: Path) -> tuple[str, ...]:
    """Make a run with a prepared training, and return the words that name it and an interpreter for it."""
    folder.mkdir()
    run, python = filled(folder), folder / "bin/python"
    python.parent.mkdir()
    for file in (python, python.with_name("llamafactory-cli")):
        file.symlink_to(sys.executable)
    timed((*_WEBGYM, "prepare", str(run.root)))
    return str(run.root), "-s", f"venvs.train={python}"


def _row(name: str, values: Series, bare: Series, inputs: dict[str, Any]) -> Row:
    return Row(name, "seconds", values, BASELINE, bare, target=_TARGETS.get(name), inputs=inputs)


def timed(call: Sequence[str]) -> float:
    """Return the seconds that a command takes, its output into a pipe."""
    began = time.perf_counter()
    subprocess.run(call, cwd=ROOT, capture_output=True, check=True, timeout=_LIMIT)
    return time.perf_counter() - began


def commands() -> int:
    """Return how many commands webgym has, those of its groups too."""
    group: Any = typer.main.get_command(build_app())
    return sum(len(getattr(command, "commands", [command])) for command in group.commands.values())


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cli", description="How long a command takes to answer.")
    parser.add_argument("--quick", action="store_true", help="5 repeats")
    parser.add_argument("--repeats", type=int, help="runs of each command (default: 21)")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Run what was asked for: rows as JSON on stdout, a table and progress on stderr."""
    args = _arguments(words)
    return reported(NAME, lambda folder: measured(folder, args.repeats or (5 if args.quick else 21)))


if __name__ == "__main__":
    sys.exit(main())
