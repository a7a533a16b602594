"""The browser fleet of a host: one or two Chromium processes for all episodes, replaced when they break or age."""

from __future__ import annotations

import asyncio

from webgym_cli.config.collect import BrowserSettings
from webgym_cli.environments.browser.find import find_chromium
from webgym_cli.environments.browser.options import SessionOptions
from webgym_cli.environments.browser.process import BrowserProcess
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.errors import BoundaryError, RoleError
from webgym_cli.records.failure import FailureKind


class BrowserPool:
    """An async context manager. Sessions are isolated contexts, spread over the processes.

    After `__aexit__` no process that the pool started is alive: they are asked, awaited, and then killed by pid.
    """

    def __init__(self, settings: BrowserSettings, proxy: str = "") -> None:
        """`proxy`: the gate that every request goes through; empty: none."""
        self._settings = settings
        self._proxy = proxy
        self._places: list[_Place] = [_Place(url) for url in settings.cdp_urls or ("",) * settings.processes]
        self._leaving: set[BrowserProcess] = set()
        self._stopping: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> BrowserPool:
        """Start the first browser. Raises `RoleError` when there is none or it can't be started."""
        if not self._settings.cdp_urls:
            find_chromium(self._settings)
        try:
            await self._live(self._places[0])
        except BoundaryError as error:
            raise RoleError(str(error), hint="webgym doctor") from error
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop all browsers and wait until all of their processes are gone."""
        for place in self._places:
            async with place.lock:
                if place.process is not None:
                    self._leaving.add(place.process)
                    place.process = None
        for process in tuple(self._leaving):
            self._stop(process)
        while self._stopping:
            await asyncio.gather(*self._stopping)

    async def session(self, options: SessionOptions) -> BrowserSession:
        """Return a session in a fresh context; a browser that died or is retired is replaced first."""
        place = min(self._places, key=lambda place: place.load)
        place.expected += 1
        try:
            process = await self._live(place)
        finally:
            place.expected -= 1
        try:
            return await self._open(process, options)
        except BoundaryError as error:
            if error.kind is not FailureKind.BROWSER_CRASHED:
                raise
        # A browser that died a moment ago may not be known as disconnected yet: one more try with another.
        await self._discard(place, process)
        return await self._open(await self._live(place), options)

    def processes(self) -> list[int]:
        """Return the pids of the drivers and of the browsers' processes that are alive now."""
        running = [place.process for place in self._places if place.process is not None]
        return [pid for process in (*running, *self._leaving) for pid in process.processes()]

    async def _open(self, process: BrowserProcess, options: SessionOptions) -> BrowserSession:
        def closed() -> None:
            if process in self._leaving and not process.sessions:
                self._stop(process)

        return await process.session(options, closed)

    async def _live(self, place: _Place) -> BrowserProcess:
        """Return the place's browser, started anew when it must be; only the first of several callers starts it."""
        async with place.lock:
            process = place.process
            if process is not None and process.alive and not process.retired:
                return process
            if process is not None:
                self._leave(place, process)
            fresh = BrowserProcess(self._settings, self._proxy, place.cdp_url)
            await fresh.start()
            place.process = fresh
            return fresh

    async def _discard(self, place: _Place, process: BrowserProcess) -> None:
        """Stop this browser, unless another caller has replaced it already."""
        async with place.lock:
            if place.process is process:
                self._leave(place, process)

    def _leave(self, place: _Place, process: BrowserProcess) -> None:
        """Take a browser out of service: it ends with its last session, at once when it is dead or idle."""
        place.process = None
        self._leaving.add(process)
        if not process.alive or not process.sessions:
            self._stop(process)

    def _stop(self, process: BrowserProcess) -> None:
        self._leaving.discard(process)
        task = asyncio.create_task(process.stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)


class _Place:
    """Where a browser runs: replaced in place, one caller at a time."""

    def __init__(self, cdp_url: str) -> None:
        self.cdp_url = cdp_url
        self.process: BrowserProcess | None = None
        self.lock = asyncio.Lock()
        self.expected = 0
        """Sessions that wait for its browser to start."""

    @property
    def load(self) -> int:
        return self.expected + (self.process.sessions if self.process else 0)
