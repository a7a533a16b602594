"""What waiting for the late changes of an action costs: seconds of a step, beside steps that do not wait for them."""

from __future__ import annotations

import statistics
import time
from collections import Counter

from benchmarks.harness import Row, Series
from webgym_cli.environments.web.environment import WebEnvironment, WebPool
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.task import Task

# What a click starts: nothing, a timer without effect (as analytics have), and texts that come later.
CASES = {"nothing": 0, "timer": 250, "toast": 600, "slow toast": 1200}
_CLICKS, _REPEATS = 6, 5
_WAITING, _DEAF = "", "window.addEventListener('webgym-timer', (event) => event.stopImmediatePropagation(), true);"
_PAGE = """<!doctype html><title>late</title><button>Go</button><p></p><script>DEAF
let clicks = 0;
document.querySelector("button").onclick = () => {
  const own = ++clicks;
  const show = () => { if ("CASE".includes("toast")) document.querySelector("p").textContent = `done ${own}`; };
  if (DELAY) setTimeout(show, DELAY);
};</script>"""


def write_page(query: str) -> str:
    """Return the page of a query, `CASE` or `CASE&deaf`."""
    case, _, deaf = query.partition("&")
    page = _PAGE.replace("DEAF", _DEAF if deaf else _WAITING)
    return page.replace("DELAY", str(CASES[case])).replace("CASE", case)


async def measure_late_changes(pool: WebPool, url: str) -> list[Row]:
    """Return a row for each case. The sides take turns, each first in every other repeat."""
    rows, environment = list[Row](), pool.new()
    try:
        for case in CASES:
            seconds: dict[str, list[float]] = {"": [], "&deaf": []}
            seen = Counter[str]()
            for number in range(_REPEATS):
                for side in sorted(seconds, reverse=bool(number % 2)):
                    address = f"{url}?{case.replace(' ', '%20')}{side}"
                    taken, texts = await _click(environment, address)
                    seconds[side].append(taken)
                    seen["texts seen without waiting" if side else "texts seen"] += texts
            sides = [Series(tuple(times)) for times in seconds.values()]
            inputs = {"clicks": _CLICKS * _REPEATS, **seen}
            rows.append(Row(f"late: {case}", "step_s", sides[0], "without waiting for timers", sides[1], inputs=inputs))
    finally:
        await environment.close()
    return rows


async def _click(environment: WebEnvironment, url: str) -> tuple[float, int]:
    """Return the median seconds of a click's step, and after how many clicks the text was there."""
    _, view = await environment.reset(Task(id=url, environment="web", start_url=url), 0)
    seconds, texts = [], 0
    for number in range(_CLICKS):
        begun = time.monotonic()
        await environment.step(Action(name=ActionName.CLICK, element_id=view.elements[0].id))
        seconds.append(time.monotonic() - begun)
        texts += f"done {number + 1}" in await environment.session.page.inner_text("p")
    return statistics.median(seconds), texts
