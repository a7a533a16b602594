"""Browser pool of a host: one or two Chromium processes for all episodes, replaced when they break or retire."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from itertools import chain

from webgym_cli.config.browser import BrowserSettings
from webgym_cli.environments.browser.executable import advise_on_start, find_chromium, raise_open_files
from webgym_cli.environments.browser.options import SessionOptions
from webgym_cli.environments.browser.process import BrowserProcess, refuse_bypass, require_address
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.errors import BoundaryError, VenvError
from webgym_cli.records.failure import FailureKind
from webgym_cli.util.secrets import expand_variables

# Seconds for which a place whose browser could not be had is only tried when no other has one.
_REST = 15.0


class BrowserPool:
    """An async context manager. Sessions are isolated contexts, spread over the processes.

    After `__aexit__` no process that the pool started is alive: they are asked, awaited, and then killed by pid.
    """

    def __init__(self, settings: BrowserSettings, proxy: str = "") -> None:
        """`proxy`: address of the egress proxy, which local browsers take; empty for none."""
        self._settings = settings
        self._proxy = proxy
        self._places: list[_BrowserSlot] = [
            _BrowserSlot(expand_variables(url)) for url in settings.cdp_urls or ("",) * settings.processes
        ]
        self._leaving: set[BrowserProcess] = set()
        self._stopping: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> BrowserPool:
        """Start the first browser, or connect to the first remote one that answers.

        Raises `VenvError` when there is none, `SettingsError` for an address that is none and for `refuse_bypass`.
        """
        if self._proxy:
            refuse_bypass(self._settings.args)
        if not self._settings.cdp_urls:
            find_chromium(self._settings)
            raise_open_files()
        for url in self._settings.cdp_urls:
            require_address(expand_variables(url))
        failures = []
        for place in self._places[: len(self._settings.cdp_urls) or 1]:
            try:
                await self._live(place)
                return self
            except BoundaryError as error:
                failures.append(str(error))
        hint = "start it with --remote-debugging-port, or fix browser.cdp_urls" if self._settings.cdp_urls else ""
        raise VenvError("; ".join(failures), hint=hint or advise_on_start())

    async def __aexit__(self, *exc: object) -> None:
        """Stop all browsers and wait until all of their processes are gone."""
        for place in self._places:
            async with place.lock:
                self._leave(place)
        for process in tuple(self._leaving):
            self._stop(process)
        while self._stopping:
            await asyncio.gather(*self._stopping)

    async def session(self, options: SessionOptions) -> BrowserSession:
        """Return a session in a fresh context; a browser that died or is retired is replaced first.

        Raises `BROWSER_CRASHED` if no browser is available.
        """
        failures = []
        for place in sorted(self._places, key=lambda place: (time.monotonic() < place.rests_until, place.load)):
            try:
                return await self._session_at(place, options)
            except BoundaryError as error:
                if error.kind is not FailureKind.BROWSER_CRASHED:
                    raise
                failures.append(error)
        raise failures[0]

    async def _session_at(self, place: _BrowserSlot, options: SessionOptions) -> BrowserSession:
        place.expected += 1
        try:
            process = await self._live(place)
        finally:
            place.expected -= 1
        try:
            return await process.session(options)
        except BoundaryError as error:
            if error.kind is not FailureKind.BROWSER_CRASHED:
                raise
        # A browser that died a moment ago may not be known as disconnected yet: one more try with another.
        return await (await self._live(place, broken=process)).session(options)

    def processes(self) -> list[int]:
        """Return the pids of the drivers and of the browsers' processes that are alive now."""
        running = [place.process for place in self._places if place.process is not None]
        return list(chain.from_iterable(process.processes() for process in (*running, *self._leaving)))

    async def _live(self, place: _BrowserSlot, broken: BrowserProcess | None = None) -> BrowserProcess:
        """Return the place's browser, started anew when it must be; only the first of several callers starts it."""
        async with place.lock:
            process = place.process
            if process is not None and process is not broken and process.alive and not process.retired:
                return process
            self._leave(place)
            fresh = BrowserProcess(self._settings, self._proxy, place.cdp_url)
            try:
                await fresh.start()
            except BoundaryError:
                place.rests_until = time.monotonic() + _REST
                raise
            place.process = fresh
            return fresh

    def _leave(self, place: _BrowserSlot) -> None:
        """Take a browser out of service: it ends with its last session, at once when it is dead or idle."""
        process, place.process = place.process, None
        if process is None:
            return
        self._leaving.add(process)
        process.when_idle = partial(self._stop, process)
        if not process.alive or not process.sessions:
            self._stop(process)

    def _stop(self, process: BrowserProcess) -> None:
        if process not in self._leaving:
            return  # it is stopping already
        self._leaving.discard(process)
        task = asyncio.create_task(process.stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)


class _BrowserSlot:
    """Where a browser runs: replaced in place, one caller at a time."""

    def __init__(self, cdp_url: str) -> None:
        self.cdp_url = cdp_url
        self.process: BrowserProcess | None = None
        self.lock = asyncio.Lock()
        self.rests_until = 0.0
        """Until then it is only tried when no other has a browser, by the clock `time.monotonic`."""
        self.expected = 0
        """Sessions that wait for its browser to start."""

    @property
    def load(self) -> int:
        return self.expected + (self.process.sessions if self.process else 0)
