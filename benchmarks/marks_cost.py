"""What a look costs the page, beside a plain pass that reads the box and the style of each element."""

from __future__ import annotations

import statistics

from webgym_cli.environments.browser.frames import OBSERVE_JS
from webgym_cli.environments.browser.observe import MAX_ELEMENTS
from webgym_cli.environments.browser.page_connection import PAGE_JS
from webgym_cli.environments.browser.session import BrowserSession

_LOOK = f"(limit) => {OBSERVE_JS}.look({{ limit }}).length"
# The scroll extents, which an observation measures once beside its two looks.
_EXTENT = f"() => {PAGE_JS}.scrolls.extent().outside"
_PLAIN = """() => {
  let sum = 0;
  const read = (root) => {
    for (const element of root.querySelectorAll("*")) {
      const { display, visibility, cursor, position } = getComputedStyle(element);
      const { width } = Element.prototype.getBoundingClientRect.call(element); // a form's fields shadow its methods
      sum += width + `${display}${visibility}${cursor}${position}`.length;
      if (element.shadowRoot) read(element.shadowRoot);
    }
  };
  read(document);
  return sum;
}"""
_REPEATS = 10


async def measure_cost(session: BrowserSession) -> tuple[float, float, float]:
    """Return the CPU milliseconds of a look, of the extents and of a plain pass: medians of repeats that take turns.

    CPU time, not wall time: on a busy machine a look is preempted many times, a plain pass hardly ever.
    """
    await (await session.connection()).channel.send("Performance.enable", {"timeDomain": "threadTicks"})
    looks, extents, passes = [], [], []
    for _ in range(_REPEATS):
        passes.append(await _time(session, _PLAIN))
        looks.append(await _time(session, _LOOK, MAX_ELEMENTS))
        extents.append(await _time(session, _EXTENT))
    return statistics.median(looks), statistics.median(extents), statistics.median(passes)


async def _time(session: BrowserSession, function: str, argument: object = None) -> float:
    before = await _read_clock(session)
    await session.evaluate(function, argument)
    return await _read_clock(session) - before


async def _read_clock(session: BrowserSession) -> float:
    """Return the CPU time of the page's main thread in milliseconds."""
    metrics = (await (await session.connection()).channel.send("Performance.getMetrics"))["metrics"]
    return 1000.0 * next(float(one["value"]) for one in metrics if one["name"] == "ThreadTime")
