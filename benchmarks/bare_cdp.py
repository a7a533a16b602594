"""A bare script against Chrome's DevTools protocol: does to the browser what our environment does, and nothing else.

No driver, no records, no storing, no prompts, no deadlines. Its scripts, flags and mouse events come in with the job,
so that the browser's work is the same. Prints what was measured as JSON.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.meter import Meter

_DEADLINE = 60.0
"""Seconds that anything may take."""
_GRACE = 5.0
"""Seconds between asking the browser to end and killing it."""


class Browser:
    """One WebSocket to a browser."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loads: dict[str, asyncio.Event] = {}
        self._reader = asyncio.create_task(self._read())

    def send(self, method: str, params: dict[str, Any], session: str = "") -> asyncio.Task[dict[str, Any]]:
        """Send a command; the task ends with its answer."""
        return asyncio.create_task(self.call(method, params, session))

    async def call(self, method: str, params: dict[str, Any], session: str = "") -> dict[str, Any]:
        """Send a command and return its answer."""
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        message = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        await self._socket.send(json.dumps(message))
        return await answer

    def loaded(self, session: str) -> asyncio.Event:
        """Return the event of the session's next `load`."""
        self._loads[session] = asyncio.Event()
        return self._loads[session]

    async def _read(self) -> None:
        async for text in self._socket:
            message = json.loads(text)
            if "id" in message:
                answer = self._answers.pop(message["id"])
                if "error" in message:
                    answer.set_exception(RuntimeError(message["error"]["message"]))
                else:
                    answer.set_result(message["result"])
            elif message["method"] == "Page.loadEventFired" and message["sessionId"] in self._loads:
                self._loads[message["sessionId"]].set()


class Page:
    """One page in a context of its own."""

    def __init__(self, browser: Browser, session: str, job: dict[str, Any]) -> None:
        self._browser = browser
        self._session = session
        self._job = job

    @classmethod
    async def open(cls, browser: Browser, job: dict[str, Any]) -> Page:
        """Make the context and the page, as Playwright sets them up for us."""
        context = (await browser.call("Target.createBrowserContext", {}))["browserContextId"]
        blank = {"url": "about:blank", "browserContextId": context}
        target = (await browser.call("Target.createTarget", blank))["targetId"]
        attached = await browser.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        session = attached["sessionId"]
        width, height = job["size"]
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await browser.call("Page.enable", {}, session)
        await browser.call("Emulation.setDeviceMetricsOverride", metrics, session)
        await browser.call("Emulation.setFocusEmulationEnabled", {"enabled": True}, session)
        await browser.call("Emulation.setLocaleOverride", {"locale": "en-US"}, session)
        await browser.call("Emulation.setTimezoneOverride", {"timezoneId": "UTC"}, session)
        for source in job["init_scripts"]:
            await browser.call("Page.addScriptToEvaluateOnNewDocument", {"source": source}, session)
        return cls(browser, session, job)

    async def episode(self, seed: int, steps: int) -> None:
        """Load the page, start the seed's episode, and take one step after another."""
        loaded = self._browser.loaded(self._session)
        await self._mouse("mouseMoved", -20, -20)
        await self._call("Page.navigate", {"url": self._job["url"]})
        await loaded.wait()
        await self._evaluate(self._job["start"], {"seed": seed, "limit": 0})
        await self._screenshot()
        for number in range(steps - 1):
            await self._click(*self._job["clicks"][number % len(self._job["clicks"])])
            await self._evaluate(self._job["show"], {"limit": 0})
            await self._screenshot()

    async def _click(self, x: float, y: float) -> None:
        button = {"button": "left", "clickCount": 1}
        await asyncio.gather(
            self._mouse("mouseMoved", x, y),
            self._mouse("mousePressed", x, y, **button),
            self._mouse("mouseReleased", x, y, **button),
        )

    def _mouse(self, kind: str, x: float, y: float, **more: Any) -> asyncio.Task[dict[str, Any]]:
        return self._call("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more})

    async def _evaluate(self, function: str, argument: dict[str, Any]) -> None:
        expression = f"({function})({json.dumps(argument)})"
        fields = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        answer = await self._call("Runtime.evaluate", fields)
        shown = answer["result"].get("value", {})
        if "listed" not in shown:
            raise RuntimeError(f"the page did not go on: {answer}")

    async def _screenshot(self) -> bytes:
        return base64.b64decode((await self._call("Page.captureScreenshot", self._job["screenshot"]))["data"])

    def _call(self, method: str, params: dict[str, Any]) -> asyncio.Task[dict[str, Any]]:
        return self._browser.send(method, params, self._session)


@contextlib.contextmanager
def chromium(command: list[str]) -> Iterator[Path]:
    """Start the browser on a profile of its own and give the profile; end it by its process group."""
    profile = Path(tempfile.mkdtemp(prefix="webgym-bare-"))
    started = subprocess.Popen(
        [*command, f"--user-data-dir={profile}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield profile
    finally:
        below = psutil.Process(started.pid).children(recursive=True)
        os.killpg(started.pid, signal.SIGTERM)  # the browser may be a child of a shell script
        started.wait(_DEADLINE)
        _, left = psutil.wait_procs(below, timeout=_GRACE)
        for process in left:
            process.kill()
        shutil.rmtree(profile, ignore_errors=True)


async def address(profile: Path) -> str:
    """Return the browser's DevTools address, once it has written it down."""
    file = profile / "DevToolsActivePort"
    # A file tells nobody that it was written.
    while not file.is_file() or "\n" not in file.read_text():  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    port, path = file.read_text().split()
    return f"ws://127.0.0.1:{port}{path}"


async def run(job: dict[str, Any]) -> dict[str, Any]:
    """Run the job's episodes, so many at once, and return what was measured."""
    waiting = iter(job["seeds"])

    async def work(browser: Browser) -> None:
        page = await Page.open(browser, job)
        for seed in waiting:
            await page.episode(seed, job["steps"])

    with chromium(job["command"]) as profile:
        async with asyncio.timeout(_DEADLINE):
            url = await address(profile)
        async with connect(url, max_size=None, compression=None, ping_interval=None, proxy=None) as socket:
            browser = Browser(socket)
            async with Meter() as meter:
                start = time.monotonic()
                await asyncio.gather(*(work(browser) for _ in range(job["concurrency"])))
                seconds = time.monotonic() - start
    return meter.figures(job["steps"] * len(job["seeds"]), seconds)


def main() -> int:
    """Read a job from stdin, run it and print the figures."""
    print(json.dumps(asyncio.run(run(json.load(sys.stdin)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
