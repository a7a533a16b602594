"""One Chromium process with its driver: started, shared by many contexts, retired in time, confirmed gone."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from webgym_cli.config.browser import BrowserSettings
from webgym_cli.environments.browser.cdp import CDPConnection
from webgym_cli.environments.browser.driver import start_driver
from webgym_cli.environments.browser.executable import find_chromium
from webgym_cli.environments.browser.failures import close_quietly, to_boundary_error
from webgym_cli.environments.browser.options import SessionOptions
from webgym_cli.environments.browser.process_tree import ProcessTree
from webgym_cli.environments.browser.profile_folder import ProfileFolder
from webgym_cli.environments.browser.remote import error_reason, redact_keys
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.errors import BoundaryError
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
    # Of several such switches the last counts, so Playwright's own feature that matters here is said again. The network
    # service in the browser's own process takes 40 MB less; on Linux it has no sandbox as a process of its own either.
    "--enable-features=CDPScreenshotNewSurface,NetworkServiceInProcess2",
    "--font-render-hinting=none",
    "--no-first-run",
    "--remote-debugging-port=0",
)
_WITHOUT_WEBGL = ("--disable-software-rasterizer",)
# With a gate nothing goes past it: not to this machine, and not by WebRTC.
_THROUGH_GATE = ("--proxy-bypass-list=<-loopback>", "--force-webrtc-ip-handling-policy=disable_non_proxied_udp")
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
_LAUNCH_TIMEOUT = 60.0
_CONNECT_TIMEOUT = 30.0
_CLOSE_TIMEOUT = 10.0
_ADDRESS_POLL = 0.02


class BrowserProcess:
    """A local Chromium, or a remote one by its CDP address. Use `start`; after `stop` nothing of it is alive.

    When our own process is killed, the driver sees its pipe end and takes the browser with it.
    """

    def __init__(self, settings: BrowserSettings, proxy: str = "", cdp_url: str = "") -> None:
        self.sessions = 0
        """Contexts that are open now."""
        self.contexts_opened = 0
        """Contexts that were ever opened."""
        self._settings = settings
        self._proxy = proxy
        self._cdp_url = cdp_url
        self._family = ProcessTree()
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self._direct: CDPConnection | None = None
        self._folder: ProfileFolder | None = None
        self._born = time.monotonic()

    @property
    def alive(self) -> bool:
        """Whether the browser is connected."""
        return self._browser is not None and self._browser.is_connected()

    @property
    def retired(self) -> bool:
        """Whether it has reached its cap of contexts or of age: it takes no new session."""
        old = time.monotonic() - self._born > self._settings.process_minutes * 60
        return old or self.contexts_opened >= self._settings.contexts_per_process

    def processes(self) -> list[int]:
        """Return the pids of the driver and of the browser's processes that are alive now."""
        self._family.scan()
        return self._family.alive()

    async def start(self) -> None:
        """Start the browser. Raises `BoundaryError` (`BROWSER_CRASHED`) within a deadline; nothing is left then."""
        if self._cdp_url:
            await self._connect()
            return
        name = str(await asyncio.to_thread(find_chromium, self._settings))
        try:
            async with asyncio.timeout(_LAUNCH_TIMEOUT):
                await self._launch(name)
        except TimeoutError as error:
            await self.stop()
            message = f"{name} did not start within {_LAUNCH_TIMEOUT:g} s"
            raise BoundaryError(FailureKind.BROWSER_CRASHED, message) from error
        except Exception as error:  # the boundary to Playwright, whose driver raises bare Exceptions too
            await self.stop()
            detail = " ".join(str(error).split())[:800]
            raise BoundaryError(FailureKind.BROWSER_CRASHED, f"{name} can't be started: {detail}") from error
        except BaseException:
            await self.stop()
            raise

    async def session(self, options: SessionOptions, closed: Callable[[], None]) -> BrowserSession:
        """Return a session in a fresh context; `closed` is called once when it closes. Raises `BoundaryError`."""
        browser, context = self._browser, None
        self.sessions += 1
        self.contexts_opened += 1

        def on_close() -> None:
            self.sessions -= 1
            closed()

        try:
            async with asyncio.timeout(options.navigation_timeout):
                if browser is None:
                    raise BoundaryError(FailureKind.BROWSER_CRASHED, "the browser has been closed")
                context = await browser.new_context(
                    viewport={"width": options.width, "height": options.height},
                    device_scale_factor=options.device_scale_factor,
                    **options.context_arguments,
                )
                session = await BrowserSession.open(context, options, self._direct, on_close)
                context = None
                return session
        except BoundaryError:
            on_close()
            raise
        except TimeoutError as error:
            on_close()
            raise BoundaryError(FailureKind.PAGE_TIMEOUT, "no browser context within the deadline") from error
        except Exception as error:  # the boundary to Playwright, whose driver raises bare Exceptions too
            on_close()
            raise to_boundary_error(error, "opening a browser context") from error
        finally:
            if context is not None:
                await close_quietly(context)

    async def stop(self) -> None:
        """Ask browser and driver to end, each within a deadline; kill what stays."""
        direct, self._direct = self._direct, None
        browser, self._browser = self._browser, None
        playwright, self._playwright = self._playwright, None
        await asyncio.to_thread(self._family.scan)
        endings = (
            direct.close() if direct else None,
            browser.close() if browser else None,
            playwright.stop() if playwright else None,
        )
        for ending in endings:
            if ending is None:
                continue
            try:
                async with asyncio.timeout(_CLOSE_TIMEOUT):
                    await ending
            except Exception:  # noqa: BLE001  Playwright's boundary: whatever it says, the processes are ended below
                continue
        await asyncio.to_thread(self._family.end)
        folder, self._folder = self._folder, None
        if folder is not None:
            await asyncio.to_thread(folder.remove)

    async def _connect(self) -> None:
        name = f"the browser at {redact_keys(self._cdp_url)}"
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                self._playwright = await start_driver()
                self._browser = await self._playwright.chromium.connect_over_cdp(self._cdp_url)
        except TimeoutError:
            await self.stop()
            message = f"{name} did not answer within {_CONNECT_TIMEOUT:g} s"
            raise BoundaryError(FailureKind.BROWSER_CRASHED, message) from None
        except Exception as error:  # noqa: BLE001  the boundary to Playwright, whose driver raises bare Exceptions too
            await self.stop()
            # Not chained: Playwright's words have the whole address in them.
            raise BoundaryError(
                FailureKind.BROWSER_CRASHED, f"{name} can't be reached: {error_reason(error)}"
            ) from None
        except BaseException:
            await self.stop()
            raise

    async def _launch(self, name: str) -> None:
        self._folder = await asyncio.to_thread(ProfileFolder)
        self._playwright = await start_driver(TMPDIR=str(self._folder.path))
        chromium = self._playwright.chromium
        self._browser = await chromium.launch(
            executable_path=name,
            args=self._arguments(),
            proxy={"server": self._proxy} if self._proxy else None,
            chromium_sandbox=self._is_sandboxed(),
            env={**_without_secrets(os.environ), self._family.variable: self._family.mark},
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
            timeout=_LAUNCH_TIMEOUT * 1000,
        )
        await asyncio.to_thread(self._family.scan)
        await asyncio.to_thread(self._family.hand_to_reaper)
        self._direct = await CDPConnection.open(await asyncio.to_thread(self._address))

    def _arguments(self) -> list[str]:
        gate = _THROUGH_GATE if self._proxy else ()
        without = _WITHOUT_WEBGL if self._settings.webgl == "off" else ()
        return [*_ARGUMENTS, *gate, *without, *self._settings.args]

    def _address(self) -> str:
        """Return the WebSocket address that the browser writes into its profile once it listens."""
        deadline = time.monotonic() + _CONNECT_TIMEOUT
        while (lines := self._family.command_lines()) and time.monotonic() < deadline:
            for argument in itertools.chain(*lines):
                if argument.startswith("--user-data-dir="):
                    # Playwright speaks through a pipe, which is ready before the port is.
                    with suppress(OSError, ValueError):
                        file = Path(argument.partition("=")[2]) / "DevToolsActivePort"
                        port, path = file.read_text(encoding="utf-8").split()
                        return f"ws://127.0.0.1:{port}{path}"
            time.sleep(_ADDRESS_POLL)
        raise BoundaryError(FailureKind.BROWSER_CRASHED, "the browser did not tell its DevTools address")

    def _is_sandboxed(self) -> bool:
        if self._settings.sandbox == "auto":
            return not (hasattr(os, "geteuid") and os.geteuid() == 0)
        return self._settings.sandbox == "on"


def _without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for a process that runs foreign code: without keys, tokens and passwords."""
    return {name: value for name, value in environment.items() if not _SECRET.search(name)}
