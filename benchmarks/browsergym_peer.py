"""Runs MiniWoB episodes through BrowserGym's own environment, a process for each worker, as its users do.

Runs in an environment of its own (`benchmarks/peers.py` makes it), so it imports nothing of ours but the meter.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import multiprocessing
import os
import statistics
import sys
import threading
import time
from typing import Any

from benchmarks.meter import Meter

_LIMIT = 900.0
"""Seconds that a worker may take."""


def use_browser(executable: str, arguments: list[str]) -> None:
    """Let Playwright start this browser: BrowserGym has no option for that, and starts a second one for its chat."""
    from playwright.sync_api import BrowserType

    launch = BrowserType.launch

    def launched(self: Any, **options: Any) -> Any:
        more = [*arguments, *(options.pop("args", None) or [])]
        return launch(self, executable_path=executable, args=more, **options)

    BrowserType.launch = launched  # type: ignore[method-assign]


def work(job: dict[str, Any], ready: Any, seeds: Any, results: Any) -> None:
    """Be a worker: send the seconds of the resets and of the steps, or what went wrong."""
    try:
        results.put(episodes(job, ready, seeds))
    except Exception as error:  # noqa: BLE001  the boundary to BrowserGym: whatever it says, the parent tells it
        ready.abort()
        results.put(f"{type(error).__name__}: {error}")


def episodes(job: dict[str, Any], ready: Any, seeds: Any) -> tuple[list[float], list[float]]:
    """Take seeds until there are none, and return how long the resets and the steps took, in seconds."""
    os.environ["MINIWOB_URL"] = job["url"]
    import gymnasium
    from browsergym.utils.obs import overlay_som

    importlib.import_module("browsergym.miniwob")  # it registers the environments
    use_browser(job["executable"], job["arguments"])
    clicks = [f"page.mouse.click({x}, {y})" for x, y in job["clicks"]]
    environment = gymnasium.make(f"browsergym/miniwob.{job['page']}", action_mapping=None, **job["options"])
    resets, steps = [], []
    ready.wait(_LIMIT)
    while (seed := seeds.get(timeout=_LIMIT)) is not None:
        start = time.monotonic()
        seen, _ = environment.reset(seed=seed)
        if job["marks"]:
            overlay_som(seen["screenshot"], seen["extra_element_properties"])
        resets.append(time.monotonic() - start)
        for number in range(job["steps"] - 1):
            start = time.monotonic()
            seen, _, ended, _, _ = environment.step(clicks[number % len(clicks)])
            if job["marks"]:
                overlay_som(seen["screenshot"], seen["extra_element_properties"])
            steps.append(time.monotonic() - start)
            if ended or seen["last_action_error"]:
                raise RuntimeError(f"the episode did not go on: {seen['last_action_error'] or 'it ended'}")
    environment.close()
    return resets, steps


async def run(job: dict[str, Any]) -> dict[str, Any]:
    """Run the job's episodes in so many workers and return what was measured."""
    context = multiprocessing.get_context("spawn")
    ready, seeds, results = context.Barrier(job["concurrency"] + 1), context.Queue(), context.Queue()
    workers = [
        context.Process(target=work, args=(job, ready, seeds, results), daemon=True) for _ in range(job["concurrency"])
    ]
    for worker in workers:
        worker.start()
    with contextlib.suppress(threading.BrokenBarrierError):  # the worker that broke it says why
        await asyncio.to_thread(ready.wait, _LIMIT)
    calls = []
    async with Meter() as meter:
        start = time.monotonic()
        for seed in [*job["seeds"], *[None] * len(workers)]:
            seeds.put(seed)
        for _ in workers:
            calls.append(await asyncio.to_thread(results.get, timeout=_LIMIT))
            if isinstance(calls[-1], str):
                raise RuntimeError(calls[-1])
        seconds = time.monotonic() - start
    for worker in workers:
        worker.join(_LIMIT)
    return {
        **meter.figures(job["steps"] * len(job["seeds"]), seconds),
        "reset_s": statistics.median(took for resets, _ in calls for took in resets),
        "step_s": statistics.median(took for _, times in calls for took in times),
    }


def main() -> int:
    """Read a job from stdin, run it and print the figures."""
    print(json.dumps(asyncio.run(run(json.load(sys.stdin)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
