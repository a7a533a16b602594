"""How well marks match what a person would click, on real applications. See `benchmarks/README.md`.

python -m benchmarks.marks                        installs the applications into a temporary folder
python -m benchmarks.marks --apps FOLDER          into this one, where they stay
python -m benchmarks.marks --apps FOLDER --only shoelace --show
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, Series, reported, say
from benchmarks.marks_apps import App, AppState, install, serve
from benchmarks.marks_aside import ASIDE, install_aside
from benchmarks.marks_by_hand import PAGES, HandState, count_by_hand
from benchmarks.marks_cost import measure_cost
from benchmarks.marks_labels import count_labels
from benchmarks.marks_libraries import LIBRARIES, install_libraries
from benchmarks.marks_states import APPS, SERVE
from webgym_cli.config.load import load
from webgym_cli.environments.browser.observe import list_elements
from webgym_cli.environments.web.environment import WebEnvironment, WebPool
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.task import Task

NAME = "marks"
_TRUTH = (Path(__file__).parent / "marks_truth.js").read_text(encoding="utf-8")
_STEP = 8
_SETTLE = 1.5
# A look takes at most ten times as long as a plain pass.
_CHEAP = 0.1
_TARGETS = {"recall": 0.99, "precision": 0.99, "duplicates": 0.01, "unnamed": 0.03}
_TARGETS |= {"labels over others": 0.01, "labels over text": 0.01, "labels read": 0.99}


async def _show_state(environment: WebEnvironment, url: str, state: AppState) -> None:
    await environment.reset(Task(id=url, environment="web", start_url=url + state.path), 0)
    page = environment.session.page
    await page.wait_for_timeout(_SETTLE * 1000)
    for selector in state.clicks:
        await page.click(selector, timeout=15_000)
        await page.wait_for_timeout(_SETTLE * 500)
    for keys in state.keys:
        await page.keyboard.press(keys)
    if state.menu:
        await page.click(state.menu, button="right", timeout=15_000)
    if state.scroll:
        await page.mouse.wheel(0, state.scroll)
    await environment.step(Action(name=ActionName.WAIT, seconds=0.5))


async def _count(environment: WebEnvironment, app: App, state: AppState, *, show: bool) -> Counter[str]:
    """Compare the marks of a state with the truth."""
    session, counts = environment.session, Counter[str]()
    seen = await list_elements(session)
    fields = {"step": _STEP, "extra": app.extra, "points": [list(one.point) for one in seen]}
    truth: dict[str, Any] = await session.page.evaluate(_TRUTH, fields)
    result = Counter(at for at in truth["at"] if at >= 0)
    pairs = list(zip(seen, truth["at"], strict=True))
    wrong = [one.element for one, at in pairs if at == -1]
    missed = [name for number, name in enumerate(truth["controls"]) if number not in result]
    twice = [f"{truth['controls'][at]} by {one.element}" for one, at in pairs if result[at] > 1]
    unnamed = [one for one in seen if not one.element.name]
    counts.update(marks=len(seen), controls=len(truth["controls"]), missed=len(missed), wrong=len(wrong))
    counts.update(duplicates=sum(times - 1 for times in result.values()), unnamed=len(unnamed))
    counts += await count_labels(session, [one.element for one in seen])
    if show:
        shown = (state.path, *state.clicks, *state.keys, state.menu)
        say(f"  {' '.join(filter(None, shown))}: {dict(counts)}")
        for word, names in (("missed", missed), ("wrong", wrong), ("twice", twice)):
            for name in names[:12]:
                say(f"    {word}: {name}")
        for one in unnamed[:6]:
            say(f"    unnamed: {one.element.role} {one.element.box}")
    return counts


async def _measure_app(pool: WebPool, app: App, url: str, *, show: bool) -> tuple[Counter[str], list[Row]]:
    """Return the counts of an application's marks, and the rows of its states' labels and of what a look costs."""
    counts, environment, rows = Counter[str](), pool.new(), list[Row]()
    costs = list[tuple[float, float, float]]()
    try:
        for state in app.states:
            await _show_state(environment, url, state)
            result = await _count(environment, app, state, show=show)
            rows.append(_row_of_labels(app.name, state, result))
            counts += result
            counts["states"] += 1
            costs.append(await measure_cost(environment.session))
    finally:
        await environment.close()
    looks, extents, passes = (Series(times) for times in zip(*costs, strict=True))
    plain = ("plain pass over boxes and styles", passes)
    rows.append(Row(app.name, "look_cpu_ms", looks, *plain, target=_CHEAP))
    rows.append(Row(app.name, "extent_cpu_ms", extents, *plain))
    return counts, rows


def _row_of_labels(name: str, state: AppState, counts: Counter[str]) -> Row:
    """Return the share of a state's labels that lie over another label, element or text; those not drawn beside it."""
    steps = (state.path.lstrip("/"), *state.clicks, *state.keys, state.menu)
    faults, labels = counts["covering"] + counts["hiding"], max(1, counts["labels"])
    inputs = {word: counts[word] for word in ("labels", "undrawn", "covering", "hiding", "unread")}
    case = " ".join(filter(None, (name, *steps)))
    return Row(
        case, "labels in the way", Series((faults / labels,)), target=_TARGETS["labels over text"], inputs=inputs
    )


async def _measure_by_hand(pool: WebPool, url: str, states: tuple[HandState, ...], *, show: bool) -> Counter[str]:
    """Return the counts of a page whose controls are listed by hand."""
    counts, environment = Counter[str](), pool.new()
    try:
        for state in states:
            await _show_state(environment, url, AppState("", state.clicks))
            result, faults = await count_by_hand(environment.session, state)
            counts += result
            if show:
                say("\n    ".join([f"  {' '.join(state.clicks)}: {dict(result)}", *faults]))
    finally:
        await environment.close()
    return counts


def _rows_by_hand(name: str, counts: Counter[str]) -> list[Row]:
    shares = {
        "recall": 1 - counts["missed"] / counts["controls"],
        "duplicates": counts["duplicates"] / counts["marks"],
        "unnamed": counts["unnamed"] / counts["marks"],
    }
    return [
        Row(
            name,
            metric,
            Series((share,)),
            higher_is_better=metric == "recall",
            target=_TARGETS[metric],
            inputs=dict(counts),
        )
        for metric, share in shares.items()
    ]


def _rows(name: str, counts: Counter[str]) -> list[Row]:
    marks, controls, labels = (max(1, counts[name]) for name in ("marks", "controls", "labels"))
    shares = {
        "recall": 1 - counts["missed"] / controls,
        "precision": 1 - counts["wrong"] / marks,
        "duplicates": counts["duplicates"] / marks,
        "unnamed": counts["unnamed"] / marks,
        "labels over others": counts["covering"] / labels,
        "labels over text": counts["hiding"] / labels,
        "labels read": 1 - counts["unread"] / labels,
    }
    return [
        Row(
            name,
            metric,
            Series((share,)),
            higher_is_better=metric in ("recall", "precision", "labels read"),
            target=_TARGETS[metric],
            inputs=dict(counts),
        )
        for metric, share in shares.items()
    ]


async def _measure(folder: Path, only: list[str], *, show: bool) -> list[Row]:
    settings = load(overrides=["browser.private_hosts=[127.0.0.1]"])
    rows: list[Row] = []
    totals = {False: Counter[str](), True: Counter[str]()}
    async with WebPool(settings, InteractionMode.SET_OF_MARKS) as pool:
        for app in (app for app in (*APPS, *LIBRARIES) if not only or app.name in only):
            say(app.name)
            with serve(app, folder) as url:
                counts, more = await _measure_app(pool, app, url, show=show)
            rows += [*_rows(app.name, counts), *more]
            totals[app.is_aside] += counts
        by_hand = Counter[str]()
        for name in (name for name in PAGES if not only or name in only):
            say(name)
            with serve(App(name, SERVE, ()), folder) as url:
                counts = await _measure_by_hand(pool, f"{url}/{name}.html", PAGES[name], show=show)
            rows += _rows_by_hand(name, counts)
            by_hand += counts
    rows += _rows_by_hand("by hand", by_hand) if by_hand else []
    names = {False: "all", True: "kept aside"}
    return [*rows, *(row for aside, counts in totals.items() if counts for row in _rows(names[aside], counts))]


def main() -> int:
    """Install, measure and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--apps", type=Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()

    def measure(place: Path) -> list[Row]:
        folder = (args.apps or place).resolve()
        install(folder, more=True)
        if not args.only or {app.name for app in ASIDE} & set(args.only):
            install_aside(folder / "venv" / "bin" / "python", folder)
        if not args.only or {app.name for app in LIBRARIES} & set(args.only):
            install_libraries(folder)
        return asyncio.run(_measure(folder, args.only, show=args.show))

    return reported(NAME, measure)


if __name__ == "__main__":
    sys.exit(main())
