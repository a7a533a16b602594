"""Whether screenshot, element list, title and URL agree on pages that change late. See `benchmarks/README.md`.

python -m benchmarks.snapshots                       1,000 observations at concurrency 16
python -m benchmarks.snapshots --observations 60
"""

from __future__ import annotations

import argparse
import asyncio
import io
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from PIL import Image

from benchmarks.harness import Row, Series, reported
from benchmarks.late_changes import measure_late_changes, write_page
from webgym_cli.config.load import load
from webgym_cli.environments.base import RawObservation
from webgym_cli.environments.web.environment import WebPool
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.task import Task

NAME = "snapshots"
FILLINGS = ("timer", "fetch", "websocket")
"""How a page comes by its next state."""
_STATES = 8
_OBSERVATIONS_PER_EPISODE = 5
# The page is empty and white, then shows its states: each has a colour, so many buttons, a title and an address.
_PAGE = """<!doctype html><title>state 0</title><style>html { height: 100% } button { display: block }</style>
<body><script>
  const show = (state) => {
    document.documentElement.style.background = state ? `rgb(${state * 25}, 100, 100)` : "white";
    document.body.replaceChildren(...Array.from({ length: state }, (_, at) =>
      Object.assign(document.createElement("button"), { textContent: `${state}.${at}` })));
    document.title = `state ${state}`;
    history.replaceState(null, "", `#${state}`);
  };
  const states = Array.from({ length: STATES }, (_, at) => at + 1);
  const later = () => new Promise((done) => setTimeout(done, 20 + Math.random() * 400));
  const next = async (state) => (await fetch("/next?" + state)).text();
  const by = {
    timer: async () => { for (const state of states) { await later(); show(state); } },
    fetch: async () => { for (const state of states) show(Number(await next(state))); },
    websocket: () => {
      const socket = new WebSocket(location.origin.replace("http", "ws") + "/stream");
      socket.onmessage = (told) => show(Number(told.data));
    },
  };
  by["FILLING"]();
</script>""".replace("STATES", str(_STATES))
_PAUSES = (0.02, 0.35, 0.1, 0.25)


async def _show_page(request: web.Request) -> web.Response:
    text = _PAGE.replace("FILLING", request.match_info["filling"])
    return web.Response(text=text, content_type="text/html")


async def _tell_next(request: web.Request) -> web.Response:
    await asyncio.sleep(_PAUSES[int(request.query_string) % len(_PAUSES)])
    return web.Response(text=request.query_string)


async def _stream(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    for state in range(1, _STATES + 1):
        await asyncio.sleep(_PAUSES[state % len(_PAUSES)])
        if socket.closed:
            break
        await socket.send_str(str(state))
    return socket


async def _show_late(request: web.Request) -> web.Response:
    return web.Response(text=write_page(request.query_string.replace("%20", " ")), content_type="text/html")


@asynccontextmanager
async def served() -> AsyncIterator[str]:
    """Serve the pages on loopback; yields their address."""
    app = web.Application()
    app.add_routes([web.get("/next", _tell_next), web.get("/stream", _stream)])
    app.add_routes([web.get("/late", _show_late), web.get("/{filling}", _show_page)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def judge(view: RawObservation) -> str:
    """Return `empty`, `partly` or `full`, or `mismatch` if parts of an observation are of different states."""
    with Image.open(io.BytesIO(view.png)) as picture:
        pixel = picture.convert("RGB").getpixel((picture.width - 5, picture.height - 5))
    red, green = pixel[:2] if isinstance(pixel, tuple) else (0, 0)
    drawn = red // 25 if green == 100 else 0
    listed = {element.name for element in view.elements}
    expected = {f"{drawn}.{at}" for at in range(drawn)}
    address = view.url.partition("#")[2] or "0"
    if listed != expected or view.title != f"state {drawn}" or address != str(drawn):
        return "mismatch"
    return "empty" if not drawn else "full" if drawn == _STATES else "partly"


async def observe(pool: WebPool, url: str, observations: int) -> Counter[str]:
    """Observe a page so many times, from its opening on."""
    environment, seen = pool.new(), Counter[str]()
    try:
        _, view = await environment.reset(Task(id=url, environment="web", start_url=url), 0)
        seen[f"first {judge(view)}"] += 1
        for _ in range(observations - 1):
            result = await environment.step(Action(name=ActionName.WAIT, seconds=0.0))
            if result.view is not None:
                seen[judge(result.view)] += 1
    finally:
        await environment.close()
    return seen


async def run(observations: int, concurrency: int) -> tuple[dict[str, Counter[str]], float]:
    """Return the counts of `judge` by how the page changes, and the seconds."""
    settings = load(overrides=["browser.private_hosts=[127.0.0.1]"])
    by_filling: dict[str, Counter[str]] = {filling: Counter() for filling in FILLINGS}
    turns, start = asyncio.Semaphore(concurrency), time.monotonic()
    async with served() as address, WebPool(settings, InteractionMode.SET_OF_MARKS) as pool:

        async def visit(filling: str) -> None:
            async with turns:
                by_filling[filling] += await observe(pool, f"{address}/{filling}", _OBSERVATIONS_PER_EPISODE)

        episodes = -(-observations // _OBSERVATIONS_PER_EPISODE)
        await asyncio.gather(*(visit(FILLINGS[number % len(FILLINGS)]) for number in range(episodes)))
    return by_filling, time.monotonic() - start


async def run_late() -> list[Row]:
    """Return the rows of what waiting for late changes costs."""
    settings = load(overrides=["browser.private_hosts=[127.0.0.1]"])
    async with served() as address, WebPool(settings, InteractionMode.SET_OF_MARKS) as pool:
        return await measure_late_changes(pool, f"{address}/late")


def measured(observations: int, concurrency: int) -> list[Row]:
    """Return the rows."""
    result, seconds = asyncio.run(run(observations, concurrency))
    rows = []
    for filling, seen in result.items():
        inputs: dict[str, Any] = {
            "concurrency": concurrency,
            "observations": seen.total(),
            "seen": dict(sorted(seen.items())),
        }
        wrong = sum(count for kind, count in seen.items() if "mismatch" in kind)
        rows.append(Row(filling, "mismatches", Series((wrong,)), target=0, inputs=inputs))
    total = sum(seen.total() for seen in result.values())
    rows.append(Row("all", "observations_per_s", Series((total / seconds,)), higher_is_better=True))
    return [*rows, *asyncio.run(run_late())]


def main() -> int:
    """Measure and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--observations", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, default=16)
    args = parser.parse_args()

    def measure(_: Path) -> list[Row]:
        return measured(args.observations, args.concurrency)

    return reported(NAME, measure)


if __name__ == "__main__":
    sys.exit(main())
