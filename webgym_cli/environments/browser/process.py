"""Lifecycle of one Chromium process and its driver, shared by many contexts; or of the connection to a remote one.

The driver of Playwright is a Node.js process that takes its environment from ours. Addresses of remote browsers are
checked, and shown without the API keys that services put into them.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from webgym_cli.config.browser import BrowserSettings
from webgym_cli.environments.browser.cdp import CDPConnection
from webgym_cli.environments.browser.executable import find_chromium
from webgym_cli.environments.browser.failures import close_quietly, to_boundary_error
from webgym_cli.environments.browser.options import SessionOptions
from webgym_cli.environments.browser.process_tree import VARIABLE, ProcessTree
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.errors import BoundaryError, SettingsError
from webgym_cli.records.failure import FailureKind
from webgym_cli.util.proxies import describe_proxy, is_this_machine
from webgym_cli.util.secrets import lend_variables
from webgym_cli.util.temporary_folder import TemporaryFolder

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
# With an egress proxy nothing may bypass it, neither loopback nor WebRTC.
_THROUGH_GATE = ("--proxy-bypass-list=<-loopback>", "--force-webrtc-ip-handling-policy=disable_non_proxied_udp")
_BYPASSES = ("proxy-server", "proxy-bypass-list")
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
# A browser's memory grows with its contexts and its age: it is replaced after so many, or so many seconds.
MAX_CONTEXTS = 400
MAX_AGE = 7200.0
_LAUNCH_TIMEOUT = 60.0
_CONNECT_TIMEOUT = 30.0
# A context is no page: on a busy machine it can take longer than a short `browser.navigation_timeout`.
_CONTEXT_TIMEOUT = 30.0
_CLOSE_TIMEOUT = 10.0
_ADDRESS_POLL = 0.02
# Maximum length of a quoted Playwright message, in characters.
_LONGEST_REASON = 800
_SCHEMES = ("http", "https", "ws", "wss")
# A password may contain `@`.
_ADDRESS = re.compile(r"\b([a-z][a-z0-9+.-]{0,30})://(?:[^\s/?#]*@)?([^\s/?#]*)\S*", re.IGNORECASE)
_LONGEST_LINE = 300
# Starts that overlap would restore each other's variables, and leave a folder in TMPDIR that is removed later.
_LOCKS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


class BrowserProcess:
    """A local Chromium, or a remote one by its CDP address. Use `start`; after `stop` nothing of it is alive.

    When our own process is killed, the driver sees its pipe end and takes the browser with it.
    """

    def __init__(self, settings: BrowserSettings, proxy: str = "", cdp_url: str = "") -> None:
        self.sessions = 0
        """Contexts that are open now."""
        self.contexts_opened = 0
        """Contexts that were ever opened."""
        self.when_idle: Callable[[], None] | None = None
        """Called when the last session closes."""
        self.address = ""
        """The WebSocket address of a local browser."""
        self._settings = settings
        self._proxy = proxy
        self._cdp_url = cdp_url
        self._family = ProcessTree()
        self._browser: Browser | None = None
        self._direct: CDPConnection | None = None
        self._resources = AsyncExitStack()
        self._born = time.monotonic()

    @property
    def alive(self) -> bool:
        """Whether the browser is connected."""
        return self._browser is not None and self._browser.is_connected()

    @property
    def retired(self) -> bool:
        """Whether it has reached its limit of contexts or age; it then accepts no new session."""
        return time.monotonic() - self._born > MAX_AGE or self.contexts_opened >= MAX_CONTEXTS

    def processes(self) -> list[int]:
        """Return the pids of the driver and of the browser's processes that are alive now."""
        self._family.scan()
        return self._family.alive()

    async def start(self) -> None:
        """Start the browser. Raises `BoundaryError` (`BROWSER_CRASHED`) within a deadline; nothing is left then."""
        if self._cdp_url:
            name, limit, late = f"the browser at {redact_keys(self._cdp_url)}", _CONNECT_TIMEOUT, "did not answer"
        else:
            name = str(await asyncio.to_thread(find_chromium, self._settings))
            limit, late = _LAUNCH_TIMEOUT, "did not start"
        try:
            async with asyncio.timeout(limit):
                await (self._connect() if self._cdp_url else self._launch(name))
        except BaseException as error:  # the boundary to Playwright, whose driver raises bare Exceptions too
            await self.stop()
            if not isinstance(error, Exception):
                raise
            if isinstance(error, TimeoutError):
                reason = f"{name} {late} within {limit:g} s"
            elif self._cdp_url:
                # Playwright's WebSockets take no proxy
                through = describe_proxy(self._cdp_url) if self._cdp_url.startswith("http") else ""
                reason = f"{name} can't be reached: {error_reason(error)}{through}"
            else:
                reason = f"{name} can't be started: {_launch_reason(error)}"
            # Of a remote browser Playwright's words have the whole address in them.
            raise BoundaryError(FailureKind.BROWSER_CRASHED, reason) from None if self._cdp_url else error

    async def session(self, options: SessionOptions) -> BrowserSession:
        """Return a session in a fresh context. Raises `BoundaryError`."""
        context = None
        self.sessions += 1
        self.contexts_opened += 1
        try:
            async with asyncio.timeout(_CONTEXT_TIMEOUT):
                if self._browser is None:
                    raise BoundaryError(FailureKind.BROWSER_CRASHED, "the browser has been closed")
                context = await self._browser.new_context(
                    viewport={"width": options.width, "height": options.height},
                    **options.context_arguments,
                )
                return await BrowserSession.open(context, options, self._direct, self._count_closed)
        except BaseException as error:  # the boundary to Playwright, whose driver raises bare Exceptions too
            if context is not None:
                await close_quietly(context.close)
            self._count_closed()
            if isinstance(error, TimeoutError):
                raise BoundaryError(FailureKind.PAGE_TIMEOUT, "no browser context within the deadline") from error
            if isinstance(error, BoundaryError) or not isinstance(error, Exception):
                raise
            raise to_boundary_error(error, "opening a browser context") from error

    async def stop(self) -> None:
        """Ask browser and driver to end, each within a deadline; kill what stays."""
        self._browser = self._direct = None
        await asyncio.to_thread(self._family.scan)
        await self._resources.aclose()

    def _count_closed(self) -> None:
        self.sessions -= 1
        if self.when_idle and not self.sessions:
            self.when_idle()

    async def _start_driver(self, **variables: str) -> Playwright:
        self._resources.push_async_callback(asyncio.to_thread, self._family.end)
        playwright = await start_driver(**variables)
        self._resources.push_async_callback(close_quietly, playwright.stop, _CLOSE_TIMEOUT)
        return playwright

    async def _connect(self) -> None:
        host = urlsplit(self._cdp_url).hostname or ""
        playwright = await self._start_driver(direct=host if is_this_machine(host) else "")
        self._browser = await playwright.chromium.connect_over_cdp(self._cdp_url)
        self._resources.push_async_callback(close_quietly, self._browser.close, _CLOSE_TIMEOUT)

    async def _launch(self, name: str) -> None:
        folder = await asyncio.to_thread(TemporaryFolder, "browser")
        self._resources.push_async_callback(asyncio.to_thread, folder.remove)
        playwright = await self._start_driver(TMPDIR=str(folder.path))
        sandbox = self._settings.sandbox
        # The browser runs foreign code: without keys, tokens and passwords.
        environment = {name: value for name, value in os.environ.items() if not _SECRET.search(name)}
        self._browser = await playwright.chromium.launch(
            executable_path=name,
            args=[*_ARGUMENTS, *(_THROUGH_GATE if self._proxy else ()), *self._settings.args],
            proxy={"server": self._proxy} if self._proxy else None,
            chromium_sandbox=sandbox == "on" or (sandbox == "auto" and os.geteuid() != 0),
            env={**environment, VARIABLE: self._family.mark},
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
            timeout=_LAUNCH_TIMEOUT * 1000,
        )
        self._resources.push_async_callback(close_quietly, self._browser.close, _CLOSE_TIMEOUT)
        await asyncio.to_thread(self._family.scan)
        await asyncio.to_thread(self._family.hand_to_reaper)
        self.address = await asyncio.to_thread(self._find_address, folder.path)
        self._direct = await CDPConnection.open(self.address)
        self._resources.push_async_callback(close_quietly, self._direct.close, _CLOSE_TIMEOUT)

    def _find_address(self, folder: Path) -> str:
        """Return the WebSocket address that the browser writes into its profile once it listens."""
        deadline = time.monotonic() + _CONNECT_TIMEOUT
        while self.alive and time.monotonic() < deadline:
            for file in folder.glob("*/DevToolsActivePort"):
                # Playwright uses a pipe, which is ready before the port is.
                with suppress(OSError, ValueError):
                    port, path = file.read_text(encoding="utf-8").split()
                    return f"ws://127.0.0.1:{port}{path}"
            time.sleep(_ADDRESS_POLL)
        raise BoundaryError(FailureKind.BROWSER_CRASHED, "the browser did not tell its DevTools address")


async def start_driver(direct: str = "", **variables: str) -> Playwright:
    """Start a driver with these environment variables; for this process they are as before afterwards.

    `direct`: another host that it reaches without the environment's proxy.
    """
    from playwright.async_api import async_playwright

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_handle_exception)
    async with _LOCKS.setdefault(loop, asyncio.Lock()):
        # A small young generation saves 20 MB.
        # Node.js takes loopback's brackets, and no networks.
        exempt = [entry for entry in (os.environ.get("no_proxy"), "localhost,127.0.0.1,[::1]", direct) if entry]
        variables["no_proxy"] = ",".join(exempt)
        variables["NODE_OPTIONS"] = f"{os.environ.get('NODE_OPTIONS', '')} --max-semi-space-size=1".strip()
        with lend_variables(**variables):
            return await async_playwright().start()


def _handle_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # Playwright raises a driver's end in the calls, and keeps it in a future that nothing reads.
    if "reading from the driver" not in str(context.get("exception")):
        loop.default_exception_handler(context)


def require_address(url: str) -> None:
    """Raise `SettingsError` unless this may be a browser's CDP address."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine:
        # what has no host to be shown alone may be a key from the first letter on
        shown = redact_keys(url) if _ADDRESS.fullmatch(url) else f"a text of {len(url)} characters"
        raise SettingsError(
            f"browser.cdp_urls: {shown} is no address of a browser",
            hint="http://HOST:PORT, or the ws:// address that the browser tells",
        )


def refuse_bypass(arguments: Sequence[str]) -> None:
    """Raise `SettingsError` for arguments of the user's that lead pages past the egress proxy: the last ones count."""
    for argument in arguments:
        if argument.lstrip("-").partition("=")[0] in _BYPASSES:
            raise SettingsError(
                f"browser.args: {argument.partition('=')[0]} would lead pages past webgym's egress proxy",
                hint="export https_proxy=http://HOST:PORT, through which that proxy reaches the web",
            )


def redact_keys(text: str) -> str:
    """Return a text whose addresses have only scheme, host and port: the rest may hold a key."""
    return _ADDRESS.sub(r"\1://\2", text)


def error_reason(error: Exception) -> str:
    """Return Playwright's message for a failed connection as one short line, without call log and keys."""
    reason = str(error).split("Call log:")[0].removeprefix("BrowserType.connect_over_cdp: ")
    return redact_keys(" ".join(reason.split()))[:_LONGEST_LINE] or type(error).__name__


def _launch_reason(error: Exception) -> str:
    """Return Playwright's message for a failed launch as one line: what the browser wrote and how it ended.

    The command is left out: its flags are longer than a message may be, and stand before the reason.
    """
    message = str(error).partition("Call log:")[0]
    lines = [line for line in message.splitlines() if "<launching>" not in line and "<process did exit" not in line]
    ends = re.findall(r"<process did exit: .*?>", str(error))
    return " ".join([" ".join(" ".join(lines).split())[:_LONGEST_REASON], *ends[:1]])
