"""Whether the recipes learn: held-out success against training rollouts and minutes. See `benchmarks/README.md`.

python -m benchmarks.learning RUNS                               every recipe, three seeds: hours
python -m benchmarks.learning RUNS --case demo-webrl --seed 7    one of them
python -m benchmarks.learning RUNS --case demo-rl > new.jsonl    rows; compared with the committed ones on stderr
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, machine, say
from webgym_cli.errors import JobError, WebGymError
from webgym_cli.records.statistics import difference, wilson
from webgym_cli.util.files import read_json, read_lines

NAME = "learning"
BASELINE = Path(__file__).with_name("learning_baseline.jsonl")
SEEDS = (7, 8, 9)
# The words of each case's command, but for run, model and seed.
_WEBRL, _RL = ("curriculum", "-c", "demo-webrl"), ("loop", "-c", "demo-rl")
_DEMO, _SUMS = ("loop", "-c", "demo"), ("loop", "-c", "sums")
_ASYNC = ("-s", "loop.mode=async")
CASES: dict[str, tuple[str, ...]] = {
    "demo": _DEMO,
    "demo, async": (*_DEMO, *_ASYNC),
    "demo-rl": _RL,
    "demo-rl, dapo": (*_RL, "-c", "dapo"),
    "demo-rl, dr-grpo": (*_RL, "-c", "dr-grpo"),
    "demo-rl, gspo": (*_RL, "-c", "gspo"),
    "demo-rl, cispo": (*_RL, "-c", "cispo"),
    "demo-rl, gigpo": (*_RL, "-c", "gigpo"),
    "sums": _SUMS,
    "sums, async": (*_SUMS, *_ASYNC, "-s", "rl.actor.recompute_old_log_probs=true"),
    "demo-webrl": _WEBRL,
    "demo-webrl, no curriculum": (*_WEBRL, "-s", "curriculum.generate=false"),
    "demo-webrl, no replay": (*_WEBRL, "-s", "rl.replay.ratio=0"),
    "demo-webrl, no window": (*_WEBRL, "-s", "rl.replay.window=[1,null]"),
    "demo-webrl, no KL": (*_WEBRL, "-s", "rl.webrl.beta=0"),
    "demo-webrl, released": (*_WEBRL, "-s", "rl.webrl.objective=released"),
}
Line = dict[str, Any]


def measure(runs: Path, case: str, seed: int) -> Line:
    """Train one case with one seed, or go on where its run stopped, and return its row. Raises `JobError`.

    A run that ends early after an evaluation (an ablation whose policy solves nothing gets no new tasks) is a row with
    its exit status as `stopped`.
    """
    run = runs / f"{case.replace(', ', '-').replace(' ', '-')}-{seed}"
    command, *options = CASES[case]
    pages = ("--pages",) if command == "curriculum" else ()
    model = runs / ("model-pages" if pages else "model")
    given = [*options, "-s", f"policy_config.base_model={model}", "-s", f"seed={seed}"]
    _execute("init-model", "tiny", str(model), *pages)
    try:
        _execute(command, str(run), *given)
    except JobError as error:
        return {**read_row(run, case, seed), "stopped": error.returncode}
    return read_row(run, case, seed)


def _execute(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "webgym_cli", *words], cwd=ROOT, stdout=sys.stderr, check=False)
    if done.returncode:
        raise JobError(f"webgym {' '.join(words)} failed", hint="webgym doctor", returncode=done.returncode)


def read_row(run: Path, case: str, seed: int) -> Line:
    """Return what a run's metrics tell of it: a point for each evaluated version."""
    began = _moment(read_json(run / "run.json")["created_at"])
    # An iteration's rollout counts all of its episodes again where groups without gradient were replaced.
    rolled: dict[tuple[str, int], int] = {}
    points = []
    for event in (json.loads(line) for _, line in read_lines(run / "metrics.jsonl")):
        if event["event"] == "survey" or (event["event"], event.get("split")) == ("rollout", "train"):
            rolled[event["event"], event["iteration"]] = event["episodes"]
        elif event["event"] == "batch":  # in the asynchronous order the replaced groups are beside the window
            size = event["episodes"] // event["groups"]
            rolled["dropped", event["iteration"]] = size * event["dropped"].get("no_variance", 0)
        elif event["event"] == "evaluation":
            minutes = (_moment(event["at"]) - began).total_seconds() / 60
            rate, count = event["success_rate"], event["episodes"]
            points.append(
                {
                    "version": event["iteration"],
                    "rollout_episodes": sum(rolled.values()),
                    "minutes": round(minutes, 1),
                    "episodes": count,
                    "successes": round(rate * count),
                    "success": rate,
                    "interval": event["interval"],
                }
            )
    if not points:
        raise JobError(f"{run}: no version was evaluated", hint=f"webgym status {run}")
    return {"benchmark": NAME, "case": case, "seed": seed, "points": points}


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def read_baseline(path: Path = BASELINE) -> list[Line]:
    """Return the rows that were measured before."""
    return [json.loads(line) for _, line in read_lines(path)]


def compare(rows: Iterable[Line], baseline: Iterable[Line]) -> Iterator[str]:
    """Yield in words each case whose newest policies do worse than those of the baseline, over all seeds.

    Worse: the 95 % interval of the difference of both shares (Newcombe's) lies below 0. A run that stopped early, and
    did not in the baseline, is said too.
    """
    rows, baseline = list(rows), list(baseline)
    known = {(row["case"], row["seed"]) for row in baseline if "stopped" in row}
    for row in rows:
        if "stopped" in row and (row["case"], row["seed"]) not in known:
            yield f"{row['case']}, seed {row['seed']}, stopped with exit status {row['stopped']}"
    now, before = _pool(rows), _pool(baseline)
    for case, result in now.items():
        if case not in before:
            continue
        delta, low, high = difference(before[case], result)
        if high < 0:
            yield (
                f"{case} unlearned: {_share(result)}, in the baseline {_share(before[case])}; "
                f"the difference is {delta:+.3f} ({low:+.3f} to {high:+.3f})"
            )


def _pool(rows: Iterable[Line]) -> dict[str, tuple[int, int]]:
    """Return by case the successes and the episodes of the newest policies of all seeds."""
    result: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for row in rows:
        (successes, episodes), last = result[row["case"]], row["points"][-1]
        result[row["case"]] = successes + last["successes"], episodes + last["episodes"]
    return result


def _share(counts: tuple[int, int]) -> str:
    low, high = wilson(*counts)
    return f"{counts[0] / counts[1]:.3f} ({low:.3f}-{high:.3f})"


def describe(row: Line) -> Iterator[str]:
    """Yield a row's points in words."""
    for at in row["points"]:
        low, high = at["interval"]
        yield (
            f"{row['case']:28} seed {row['seed']}  version {at['version']}  {at['success']:.3f} "
            f"({low:.3f}-{high:.3f})  {at['rollout_episodes']:5} episodes  {at['minutes']:5.1f} min"
        )


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description="Whether the recipes learn.")
    parser.add_argument("runs", type=Path, help="folder of the runs; those that are there are gone on with")
    parser.add_argument("--case", action="append", choices=list(CASES), help="a case (default: all)")
    parser.add_argument("--seed", action="append", type=int, help="a seed (default: 7, 8 and 9)")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print a row for each case and seed, and compare; 1 where a case unlearned."""
    given, rows = _arguments(words), []
    about = machine()
    try:
        for seed in given.seed or SEEDS:
            for case in given.case or CASES:
                rows.append(measure(given.runs.absolute(), case, seed))
                print(json.dumps({**rows[-1], "machine": about}), flush=True)
                say("\n".join(describe(rows[-1])))
    except WebGymError as error:
        say(f"error: {error}" + (f"\n  next: {error.hint}" if error.hint else ""))
        return error.exit_code
    worse = list(compare(rows, read_baseline()))
    for line in worse:
        say(line)
    return 1 if worse else 0


if __name__ == "__main__":
    raise SystemExit(main())
