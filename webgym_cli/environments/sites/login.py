"""Login to WebArena's sites with a real browser, and check of existing logins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from webgym_cli.config.model import Settings
from webgym_cli.config.webarena import AccountSite
from webgym_cli.environments.browser.address_rules import AddressRules
from webgym_cli.environments.browser.egress_proxy import EgressProxy
from webgym_cli.environments.browser.options import SessionOptions
from webgym_cli.environments.browser.pool import BrowserPool
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.errors import BoundaryError, UsageError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.webarena import WebArenaSite
from webgym_cli.util.secrets import read_secret

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

_PASSWORD_SHOWN = "input[type=password]:visible"
# Elements with a site's error messages.
_ALERTS = "[role=alert], .message-error, .alert, .error, .flash-alert"
_LONGEST_ALERT = 200


class LoginManager:
    """Logs in to the configured sites, each time in a fresh browser context."""

    def __init__(self, settings: Settings, browsers: Callable[[], BrowserPool]) -> None:
        """`browsers`: returns the browser pool, behind a proxy that allows the sites."""
        self._settings = settings
        self._browsers = browsers
        self._options = SessionOptions.of(settings.browser)

    async def log_in(self, site: WebArenaSite) -> dict[str, Any]:
        """Log in to a site and return Playwright's storage state after verifying the login.

        Raises `UsageError` without an account or its password, `BoundaryError` if the site can't be reached or rejects
        the login.
        """
        known = find_account(self._settings, site)
        secret = read_password(site, known)
        async with self._session({}) as session:
            await self._open(session, site, known.login_page)
            for place, text in (("account_field", known.account), ("password_field", secret)):
                await self._fill(session, site, place, text)
            await self._submit(session, site)
            complaint = await self._complaint(session)
            if why := await self._check_session(session, site):
                detail = f"; it said: {complaint}" if complaint else ""
                raise BoundaryError(
                    FailureKind.ENVIRONMENT_ERROR,
                    f"{site} did not let {known.account} in: {why}{detail}",
                    hint=f"check webarena.{site}.account and the variable {known.password_env_var}, "
                    f"then: webgym login {site}",
                )
            async with session.guard("keeping the login"):
                return dict(await session.page.context.storage_state())

    async def check_session(self, site: WebArenaSite, state: Path) -> str:
        """Return why a site seems to reject a stored login; empty if it accepts it.

        Raises `BoundaryError` if the site can't be reached, or the login can't be read.
        """
        async with self._session({"storage_state": str(state)}) as session:
            return await self._check_session(session, site)

    async def _check_session(self, session: BrowserSession, site: WebArenaSite) -> str:
        known = find_account(self._settings, site)
        status = await self._open(session, site, known.proof_page, refusals=True)
        if status >= 400:
            return f"{session.url} answers with status {status}"
        login, proof = f"{known.url}{known.login_page}", f"{known.url}{known.proof_page}"
        if _is_below(session.url, login) and not _is_below(proof, login):
            return f"{proof} leads to the login page"
        if known.proof:
            there = await self._appears(session, _locator(session.page, known.proof).first)
            return "" if there else f"{session.url} does not have webarena.{site}.proof, {known.proof!r}"
        async with session.guard("looking for a login form"):
            shown = await session.page.locator(_PASSWORD_SHOWN).count()
        return f"{session.url} asks for a password" if shown else ""

    async def _open(self, session: BrowserSession, site: WebArenaSite, page: str, *, refusals: bool = False) -> int:
        """Open a page of a site and return its status. Raises `BoundaryError` if it can't be loaded.

        `refusals`: accept status codes from 400 to 499.
        """
        url = f"{self._settings.webarena.site(site).url}{page}"
        hint = f"start the site, or fix webarena.{site}.url"
        try:
            status = await session.goto(url)
        except BoundaryError as error:
            raise BoundaryError(error.kind, f"{site}: {url} can't be opened: {error}", hint=hint) from error
        if status >= (500 if refusals else 400):
            message = f"{site}: {url} answers with status {status}"
            raise BoundaryError(FailureKind.NAVIGATION_FAILED, message, hint=hint)
        return status

    async def _fill(self, session: BrowserSession, site: WebArenaSite, place: str, text: str) -> None:
        where = str(getattr(find_account(self._settings, site), place))
        field = await self._visible(session, site, place, where)
        async with session.guard(f"filling in {where!r}"):
            await field.fill(text)

    async def _submit(self, session: BrowserSession, site: WebArenaSite) -> None:
        """Submit the form and wait for the next page, if there is one."""
        known = find_account(self._settings, site)
        send = await self._visible(session, site, "submit", known.submit) if known.submit else None
        field = await self._visible(session, site, "password_field", known.password_field)
        limit = self._options.navigation_timeout
        async with session.guard("sending the login", limit + 1):
            from playwright.async_api import TimeoutError as PlaywrightTimeout

            try:
                async with session.page.expect_navigation(wait_until="load", timeout=limit * 1000):
                    await (send.click(no_wait_after=True) if send else field.press("Enter", no_wait_after=True))
            except PlaywrightTimeout:
                return  # a page that logs in without navigation; the login is verified next

    async def _visible(self, session: BrowserSession, site: WebArenaSite, place: str, where: str) -> Locator:
        """Return the element at a location of the login form. Raises `BoundaryError` if there is none."""
        locator = _locator(session.page, where).filter(visible=True).first
        if await self._appears(session, locator):
            return locator
        raise BoundaryError(
            FailureKind.ENVIRONMENT_ERROR,
            f"{site}: {session.url} does not show webarena.{site}.{place}, {where!r}",
            hint=f"look at the page's login form, then: -s 'webarena.{site}.{place}=...'",
        )

    async def _appears(self, session: BrowserSession, locator: Locator) -> bool:
        """Whether an element exists or appears while the page settles."""
        from playwright.async_api import TimeoutError as PlaywrightTimeout

        seconds = self._settings.browser.max_idle_wait
        async with session.guard("looking at the page", self._options.action_timeout + seconds):
            if seconds and not await locator.count():
                with suppress(PlaywrightTimeout):
                    await locator.wait_for(state="attached", timeout=seconds * 1000)
            return await locator.count() > 0

    async def _complaint(self, session: BrowserSession) -> str:
        """Return the page's error message, if any."""
        async with session.guard("reading what the page says"):
            texts = await session.page.locator(_ALERTS).filter(visible=True).all_inner_texts()
        return " ".join(" ".join(texts).split())[:_LONGEST_ALERT]

    @asynccontextmanager
    async def _session(self, arguments: dict[str, Any]) -> AsyncIterator[BrowserSession]:
        given = {**self._options.context_arguments, **arguments}
        session = await self._browsers().session(replace(self._options, context_arguments=given))
        try:
            yield session
        finally:
            await session.close()


@asynccontextmanager
async def open_login_manager(settings: Settings) -> AsyncIterator[LoginManager]:
    """Yield a manager with its own browser, behind a proxy that allows the sites."""
    async with AsyncExitStack() as stack:
        rules = AddressRules.of(settings.browser.private_hosts).with_names(list_site_hosts(settings))
        gate = await stack.enter_async_context(EgressProxy(rules))
        # As in episodes: a remote browser can't reach our loopback address.
        pool = BrowserPool(settings.browser, "" if settings.browser.cdp_urls else gate.address)
        browsers = await stack.enter_async_context(pool)
        yield LoginManager(settings, lambda: browsers)


def list_site_hosts(settings: Settings) -> tuple[str, ...]:
    """Return the hosts of the sites, which may be reached although they are private."""
    hosts = (urlsplit(url).hostname or "" for url in settings.webarena.addresses().values())
    return tuple(dict.fromkeys(hosts))


def find_account(settings: Settings, site: WebArenaSite) -> AccountSite:
    """Return the settings of a site with login. Raises `UsageError` for others."""
    known = settings.webarena.site(site)
    if not isinstance(known, AccountSite) or not known.account:
        raise UsageError(f"webarena.{site}: nobody logs in there, it has no account")
    if not known.url:
        raise UsageError(f"webarena.{site}.url is empty", hint=f"-s webarena.{site}.url=http://HOST:PORT")
    return known


def read_password(site: WebArenaSite, known: AccountSite) -> str:
    """Return an account's password. Raises `UsageError` if its variable is not set."""
    name = known.password_env_var
    if not name:
        raise UsageError(f"webarena.{site}.password_env_var is empty: no variable holds the password")
    if not (secret := read_secret(name)):
        raise UsageError(f"the variable {name} is not set: {site} needs the password of {known.account}")
    return secret


def _locator(page: Page, where: str) -> Locator:
    kind, _, words = where.partition("=")
    if kind == "label":
        return page.get_by_label(words)
    if kind == "button":
        return page.get_by_role("button", name=words)
    if kind == "text":
        return page.get_by_text(words)
    return page.locator(f"[name={_quote(words)}]" if kind == "name" else where)


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _is_below(url: str, page: str) -> bool:
    """Whether a URL equals a page's URL or is below it."""
    path, top = (urlsplit(text).path.rstrip("/") + "/" for text in (url, page))
    return path.startswith(top)
