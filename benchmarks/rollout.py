"""How fast rollouts are: against synchronous ones, a bare CDP script, and BrowserGym. See `benchmarks/README.md`.

python -m benchmarks.rollout             everything, about two and a half hours
python -m benchmarks.rollout --quick     a taste of everything but the peers, within a minute
python -m benchmarks.rollout --peers     first install BrowserGym beside us, then everything
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import peers
from benchmarks.browser_command import browser_command
from benchmarks.engine import Job
from benchmarks.episodes import CLICKS, LENGTH, NETWORK, NOTHING, PAGE, POLICY, Distributions, Lognormal
from benchmarks.harness import Row, Series, emit, machine, program, rounded, say, table
from benchmarks.schedulers import DESCRIPTIONS, NAIVE, OURS, REFILL
from webgym_cli.config.load import load
from webgym_cli.environments.browser.executable import chromium_version, find_chromium
from webgym_cli.environments.browser.observe import observe_script
from webgym_cli.environments.browser.page_connection import SCREENSHOT
from webgym_cli.environments.miniwob.oracle import list_expert_tasks
from webgym_cli.environments.miniwob.pages import INIT_SCRIPT, SHOW_JS, START_JS, page_url
from webgym_cli.errors import WebGymError
from webgym_cli.records.action import InteractionMode

NAME = "rollout"
SESSIONS = 8
"""Sessions of the matched step and of the peers."""
VIEWPORT = (1280, 768)
"""The matched step's, in CSS pixels."""
_LOCAL, _NETWORK = "local", "network"
_TARGETS = {_LOCAL: 3.0, _NETWORK: 4.5}
"""Naive makespan over ours."""

Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison of the schedulers."""

    network: str
    concurrency: int
    episodes: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is run."""

    cases: tuple[Case, ...] = (
        Case(_LOCAL, 16, 192),
        Case(_LOCAL, 32, 192),
        Case(_NETWORK, 16, 512),
        Case(_NETWORK, 32, 192),
    )
    length: Lognormal = LENGTH
    factor: float = 1.0
    """What latencies and waits are multiplied by."""
    schedule_repeats: int = 3
    matched_episodes: int = 48
    matched_steps: int = 16
    matched_repeats: int = 5
    expert_seeds: int = 2
    expert_pages: int | None = None
    """How many of the expert's pages; None: all."""
    peer_episodes: int = 16
    peer_steps: int = 12
    peer_repeats: int = 3
    judged: bool = True
    """Whether the targets are for figures of this size."""

    def repeated(self, repeats: int | None) -> Sizes:
        """Return the sizes with so many repeats of every comparison; None: as they are."""
        if repeats is None:
            return self
        return replace(self, schedule_repeats=repeats, matched_repeats=repeats, peer_repeats=repeats)


QUICK = Sizes(
    cases=(Case(_LOCAL, 4, 8), Case(_NETWORK, 4, 8)),
    length=Lognormal(3.0, 0.3),
    factor=0.2,
    schedule_repeats=1,
    matched_episodes=8,
    matched_steps=4,
    matched_repeats=1,
    expert_seeds=1,
    expert_pages=4,
    peer_episodes=2,
    peer_steps=3,
    peer_repeats=1,
    judged=False,
)


def alternated(repeats: int, sides: dict[str, Callable[[int], Result]]) -> dict[str, list[Result]]:
    """Run every side in every repeat, each time another one first, and return the results by side."""
    results: dict[str, list[Result]] = {name: [] for name in sides}
    order = deque(sides)
    for number in range(repeats):
        for name in order:
            results[name].append(sides[name](number))
        order.rotate(1)
    return results


def series(results: Sequence[Result], read: Callable[[Result], float]) -> Series:
    """Return one figure of all repeats."""
    return Series(tuple(read(result) for result in results))


def steps_per_second(result: Result) -> float:
    """Return the steps of a second."""
    return float(result["steps"] / result["seconds"])


def cpu(result: Result) -> float:
    """Return the CPU milliseconds of a step, all processes together."""
    return float(result["cpu_ms_per_step"]["total"])


def memory(result: Result) -> float:
    """Return the memory of all processes in MiB."""
    return float(result["pss_mb"]["total"])


def peak(result: Result) -> float:
    """Return the memory of all processes at the fullest look, in MiB."""
    return float(result["peak_pss_mb"]["total"])


def split(results: Sequence[Result], figure: str) -> dict[str, float]:
    """Return the medians of a figure's parts, by kind of process."""
    kinds = [kind for kind in results[0][figure] if kind != "total"]
    return {kind: rounded(statistics.median(result[figure].get(kind, 0.0) for result in results)) for kind in kinds}


def schedulers(sizes: Sizes) -> list[Row]:
    """Compare our scheduler with the synchronous ones, on the same drawn numbers."""
    return [row for case in sizes.cases for row in _compared(case, sizes)]


def _compared(case: Case, sizes: Sizes) -> list[Row]:
    network = NETWORK.times(sizes.factor) if case.network == _NETWORK else NOTHING
    drawn = Distributions(POLICY.times(sizes.factor), network, sizes.length)

    def side(scheduler: str) -> Callable[[int], Result]:
        def run(number: int) -> Result:
            scripts = tuple(drawn.scripts(case.episodes, number + 1))
            say(f"{case.network} N={case.concurrency}, set {number + 1} of {sizes.schedule_repeats}: {scheduler}")
            return program("engine", Job(scripts, case.concurrency, scheduler).to_json())

        return run

    results = alternated(sizes.schedule_repeats, {name: side(name) for name in (NAIVE, REFILL, OURS)})
    shared = {
        "episodes": case.episodes,
        "sets": sizes.schedule_repeats,
        "page": PAGE,
        "steps": [result["steps"] for result in results[OURS]],
        "distributions": drawn.to_json(),
        "schedulers": DESCRIPTIONS,
    }
    label = f"{case.network} N={case.concurrency}"
    rows = []
    for metric in ("makespan_s", "time_to_80_s"):
        figures = {name: Series(tuple(result[metric] for result in results[name])) for name in results}
        for name in (NAIVE, REFILL):
            target = _TARGETS[case.network] if (name, metric) == (NAIVE, "makespan_s") and sizes.judged else None
            rows.append(Row(label, metric, figures[OURS], name, figures[name], target=target, inputs=shared))
    return rows


def matched(sizes: Sizes) -> list[Row]:
    """Compare the whole engine with a bare script that does the same to the browser, step by step."""
    command = asyncio.run(browser_command())
    still = Distributions(NOTHING, NOTHING, Lognormal(sizes.matched_steps, 0.0))

    def engine(number: int) -> Result:
        say(f"matched step, repeat {number + 1} of {sizes.matched_repeats}: ours")
        scripts = tuple(still.scripts(sizes.matched_episodes, number + 1))
        return program("engine", Job(scripts, SESSIONS, size=VIEWPORT).to_json())

    def bare(name: str, screenshot: dict[str, Any]) -> Callable[[int], Result]:
        def run(number: int) -> Result:
            say(f"matched step, repeat {number + 1} of {sizes.matched_repeats}: {name}")
            seeds = [script.seed for script in still.scripts(sizes.matched_episodes, number + 1)]
            return program("bare_cdp", bare_job(command, seeds, sizes.matched_steps, screenshot))

        return run

    encodings = {"bare CDP": {"format": "png"}, "bare CDP, our PNG encoding": SCREENSHOT}
    results = alternated(
        sizes.matched_repeats, {"ours": engine} | {name: bare(name, result) for name, result in encodings.items()}
    )
    ours = results["ours"]
    shared = {
        "sessions": SESSIONS,
        "viewport": VIEWPORT,
        "page": PAGE,
        "episodes": sizes.matched_episodes,
        "steps_per_episode": sizes.matched_steps,
        "policy": "answers at once",
        "step": "click at a point, wait until the page has drawn, page information, PNG screenshot",
    }
    case = f"matched step N={SESSIONS}"

    def row(metric: str, read: Callable[[Result], float], target: float | None, name: str, **more: Any) -> Row:
        target = target if sizes.judged else None
        values, others = series(ours, read), series(results[name], read)
        return Row(
            case,
            metric,
            values,
            name,
            others,
            target=target,
            inputs={**shared, **more},
            higher_is_better=read is steps_per_second,
        )

    default, same = encodings
    cpu_parts = {name: split(side, "cpu_ms_per_step") for name, side in results.items()}
    memory_parts = {name: split(side, "pss_mb") for name, side in results.items()}
    return [
        row("steps_per_s", steps_per_second, 0.9, default),
        row("steps_per_s", steps_per_second, None, same),
        row("cpu_ms_per_step", cpu, 0.8, default, medians_by_process=cpu_parts),
        row("cpu_ms_per_step", cpu, None, same),
        row("pss_mb", memory, None, default, medians_by_process=memory_parts),
        row("peak_pss_mb", peak, None, default),
        Row(
            case,
            "pss_mb_of_eight_sessions",
            series(ours, memory),
            target=600.0 if sizes.judged else None,
            inputs=shared,
        ),
    ]


def bare_job(command: Sequence[str], seeds: Sequence[int], steps: int, screenshot: dict[str, Any]) -> dict[str, Any]:
    """Return the bare script's job: our browser, our scripts, our clicks, and the parameters of its screenshots."""
    return {
        "command": list(command),
        "init_scripts": [observe_script(watch_listeners=True), INIT_SCRIPT],
        "start": START_JS,
        "show": SHOW_JS,
        "url": page_url(PAGE),
        "clicks": CLICKS,
        "screenshot": screenshot,
        "size": VIEWPORT,
        "seeds": list(seeds),
        "steps": steps,
        "concurrency": SESSIONS,
    }


def experts(sizes: Sizes) -> list[Row]:
    """Let the expert solve real MiniWoB pages through the engine, in both interaction modes."""
    pages = list_expert_tasks()[: sizes.expert_pages]
    rows = []
    for mode in InteractionMode:
        say(f"{len(pages)} MiniWoB pages, {mode}")
        outcome = Distributions(NOTHING, NOTHING, Lognormal(1.0, 0.0)).scripts(len(pages) * sizes.expert_seeds, 7)
        scripts = tuple(replace(script, page=pages[number % len(pages)]) for number, script in enumerate(outcome))
        result = program("engine", Job(scripts, SESSIONS, expert=True, mode=mode).to_json())
        inputs = {
            "pages": len(pages),
            "episodes": result["episodes"],
            "steps": result["steps"],
            "sessions": SESSIONS,
            "unsolved": result["unsolved"],
        }
        solved = Series((result["solved"] / result["episodes"],))
        speed = Series((result["episodes"] / result["seconds"],))
        case = f"{len(pages)} MiniWoB pages, {mode}"
        rows.append(Row(case, "solved_share", solved, higher_is_better=True, target=1.0, inputs=inputs))
        rows.append(Row(case, "episodes_per_s", speed, higher_is_better=True, inputs=inputs))
    return rows


def peer(sizes: Sizes) -> list[Row]:
    """Compare with BrowserGym on the same page, each with its own viewport and observation."""
    if not peers.BROWSERGYM.installed:
        say("BrowserGym: skipped, it is not installed; to install it beside us: python -m benchmarks.rollout --peers")
        return []
    return [row for mode in InteractionMode for row in _beside_browsergym(mode, sizes)]


def _beside_browsergym(mode: InteractionMode, sizes: Sizes) -> list[Row]:
    still = Distributions(NOTHING, NOTHING, Lognormal(sizes.peer_steps, 0.0))
    marks = mode is InteractionMode.SET_OF_MARKS

    def ours(number: int) -> Result:
        say(f"peers, {mode}, repeat {number + 1} of {sizes.peer_repeats}: ours")
        scripts = tuple(still.scripts(sizes.peer_episodes, number + 1))
        return program("engine", Job(scripts, SESSIONS, mode=mode).to_json())

    def theirs(options: dict[str, Any]) -> Callable[[int], Result]:
        def run(number: int) -> Result:
            say(f"peers, {mode}, repeat {number + 1} of {sizes.peer_repeats}: BrowserGym {options or 'as it is'}")
            seeds = [script.seed for script in still.scripts(sizes.peer_episodes, number + 1)]
            return peers.measure(seeds, sizes.peer_steps, SESSIONS, options, marks=marks)

        return run

    default, fast = f"{peers.BROWSERGYM}", f"{peers.BROWSERGYM}, waits off"
    results = alternated(sizes.peer_repeats, {"ours": ours, default: theirs({}), fast: theirs(peers.WAITS_OFF)})
    shared = {"page": PAGE, "episodes": sizes.peer_episodes, "steps_per_episode": sizes.peer_steps}
    case = f"MiniWoB, {mode} N={SESSIONS}"
    rows = []
    for name in (default, fast):
        inputs = {
            **shared,
            "peer_reset_s": round(series(results[name], lambda result: float(result["reset_s"])).median, 3),
            "peer_step_s": round(series(results[name], lambda result: float(result["step_s"])).median, 3),
        }
        for metric, read, higher in (
            ("steps_per_s", steps_per_second, True),
            ("cpu_ms_per_step", cpu, False),
            ("pss_mb", memory, False),
        ):
            mine, other = series(results["ours"], read), series(results[name], read)
            rows.append(Row(case, metric, mine, name, other, higher_is_better=higher, inputs=inputs))
    return rows


PARTS: dict[str, Callable[[Sizes], list[Row]]] = {
    "matched": matched,
    "experts": experts,
    "schedulers": schedulers,
    "peers": peer,
}
"""The parts of the benchmark."""


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rollout", description="How fast rollouts are.")
    parser.add_argument("--quick", action="store_true", help="a taste of everything, within a minute")
    parser.add_argument("--peers", action="store_true", help="install BrowserGym first, in an environment of its own")
    parser.add_argument("--only", action="append", choices=list(PARTS), help="one part; repeatable")
    parser.add_argument("--repeats", type=_positive, help="repeats of every comparison, each on another episode set")
    return parser.parse_args(words)


def _positive(word: str) -> int:
    if not word.isdecimal() or not int(word):
        raise argparse.ArgumentTypeError(f"a whole number from 1 on, not {word!r}")
    return int(word)


def main(words: Sequence[str] | None = None, quick: Sizes = QUICK) -> int:
    """Run what was asked for: rows as JSON on stdout, a table and progress on stderr."""
    args = _arguments(words)
    sizes = (quick if args.quick else Sizes()).repeated(args.repeats)
    parts = args.only or [name for name in PARTS if not (args.quick and name == "peers")]
    about = machine() | {"chromium": chromium_version(find_chromium(load().browser))}
    say(", ".join(f"{name} {value}" for name, value in about.items()))
    rows: list[Row] = []
    try:
        if args.peers:
            peers.BROWSERGYM.install()
        for name in parts:
            result = PARTS[name](sizes)
            emit(NAME, result)
            rows += result
    except WebGymError as error:
        say(f"error: {error}" + (f"\n  next: {error.hint}" if error.hint else ""))
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    finally:
        if rows:
            say(f"\n{table(rows)}\nload now: {machine()['load_1m']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
