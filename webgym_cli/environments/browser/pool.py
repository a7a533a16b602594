"""One Playwright and one Chromium process for many episodes: started once, replaced when it dies, confirmed gone."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from webgym_cli.config.collect import BrowserSettings
from webgym_cli.environments.browser.family import Family
from webgym_cli.environments.browser.find import find_chromium
from webgym_cli.environments.browser.session import BrowserSession, SessionOptions, close_quietly, named
from webgym_cli.errors import BoundaryError, RoleError
from webgym_cli.records.failure import FailureKind

if TYPE_CHECKING:
    from playwright.async_api import Browser, Playwright

_ARGUMENTS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-partial-raster",
    "--disable-quic",
    "--disable-smooth-scrolling",
    "--disable-sync",
    "--font-render-hinting=none",
    "--no-first-run",
)
_LAUNCH_TIMEOUT = 60.0
_CLOSE_TIMEOUT = 10.0


class BrowserPool:
    """An async context manager. Sessions are isolated contexts of one shared browser process.

    After `__aexit__` no process that the pool started is alive: they are asked, awaited, and then killed by pid.
    When this process is killed instead, the driver sees its pipe end and takes the browser with it.
    """

    def __init__(self, settings: BrowserSettings) -> None:
        self._settings = settings
        self._lock = asyncio.Lock()
        self._family = Family()
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None

    async def __aenter__(self) -> BrowserPool:
        """Start the browser. Raises `RoleError` when there is none or it can't be started."""
        find_chromium(self._settings)
        try:
            await self._connected()
        except BoundaryError as error:
            await self._stop()
            raise RoleError(str(error), hint="webgym doctor") from error
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop the browser and wait until all of its processes are gone."""
        async with self._lock:
            await self._stop()

    async def session(self, options: SessionOptions) -> BrowserSession:
        """Return a session in a fresh context; a browser that died is started again first."""
        browser = await self._connected()
        try:
            return await self._open(browser, options)
        except BoundaryError as error:
            if error.kind is not FailureKind.BROWSER_CRASHED:
                raise
            # A browser that died a moment ago may not be known as disconnected yet: one more try with another.
            await self._discard(browser)
        return await self._open(await self._connected(), options)

    async def _open(self, browser: Browser, options: SessionOptions) -> BrowserSession:
        context = None
        try:
            async with asyncio.timeout(options.navigation_timeout):
                context = await browser.new_context(
                    viewport={"width": options.width, "height": options.height},
                    device_scale_factor=options.device_scale_factor,
                    **options.context_arguments,
                )
                session, context = await BrowserSession.open(context, options), None
                return session
        except TimeoutError as error:
            raise BoundaryError(FailureKind.PAGE_TIMEOUT, "no browser context within the deadline") from error
        except Exception as error:  # the boundary to Playwright, whose driver raises bare Exceptions too
            raise named(error, "opening a browser context") from error
        finally:
            if context is not None:
                await close_quietly(context)

    def processes(self) -> list[int]:
        """Return the pids of the driver and of the browser's processes that are alive now."""
        self._family.learn()
        return self._family.alive()

    async def _connected(self) -> Browser:
        """Return a live browser; only the first of several callers starts it."""
        async with self._lock:
            if self._browser is not None and self._browser.is_connected():
                return self._browser
            try:
                async with asyncio.timeout(_LAUNCH_TIMEOUT):
                    return await self._launch()
            except TimeoutError as error:
                await self._stop()
                message = f"Chromium did not start within {_LAUNCH_TIMEOUT:g} s"
                raise BoundaryError(FailureKind.BROWSER_CRASHED, message) from error

    async def _discard(self, browser: Browser) -> None:
        """Stop this browser, unless another caller has replaced it already."""
        async with self._lock:
            if self._browser is browser:
                await self._stop()

    async def _launch(self) -> Browser:
        if self._browser is not None:
            # Driver and browser go together: a driver that lost its browser is cheap to replace, and never stale.
            await self._stop()
        executable = await asyncio.to_thread(find_chromium, self._settings)
        from playwright.async_api import async_playwright

        try:
            if self._playwright is None:
                self._playwright = await async_playwright().start()
            self._browser = await self._playwright.chromium.launch(
                executable_path=executable,
                args=[*_ARGUMENTS, *self._settings.args],
                chromium_sandbox=self._sandboxed(),
                env={**os.environ, self._family.variable: self._family.mark},
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
                timeout=_LAUNCH_TIMEOUT * 1000,
            )
        except Exception as error:  # the boundary to Playwright, whose driver raises bare Exceptions too
            await self._stop()
            detail = " ".join(str(error).split())[:800]
            raise BoundaryError(FailureKind.BROWSER_CRASHED, f"{executable} can't be started: {detail}") from error
        await asyncio.to_thread(self._family.learn)
        return self._browser

    def _sandboxed(self) -> bool:
        if self._settings.sandbox == "auto":
            return not (hasattr(os, "geteuid") and os.geteuid() == 0)
        return self._settings.sandbox == "on"

    async def _stop(self) -> None:
        """Ask browser and driver to end, each within a deadline; kill what stays."""
        browser, self._browser = self._browser, None
        playwright, self._playwright = self._playwright, None
        await asyncio.to_thread(self._family.learn)
        for ending in (browser.close() if browser else None, playwright.stop() if playwright else None):
            if ending is None:
                continue
            try:
                async with asyncio.timeout(_CLOSE_TIMEOUT):
                    await ending
            except Exception:  # noqa: BLE001  Playwright's boundary: whatever it says, the processes are ended below
                continue
        await asyncio.to_thread(self._family.end)
