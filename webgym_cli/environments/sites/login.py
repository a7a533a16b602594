"""Login to sites with a real browser, and check of existing logins. A login is named `SITE` or `SITE@ROLE`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from webgym_cli.config.model import Settings
from webgym_cli.config.sites import DEFAULT_ROLE, SiteAccount, SiteSettings
from webgym_cli.environments.browser.address_rules import AddressRules
from webgym_cli.environments.browser.egress_proxy import EgressProxy
from webgym_cli.environments.browser.options import SessionOptions, read_credentials
from webgym_cli.environments.browser.pool import BrowserPool
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.errors import BoundaryError, SettingsError, UsageError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.webarena import WebArenaSite
from webgym_cli.util.optional import when
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
        unchecked = bool(list_unchecked_hosts(settings))
        self._options = SessionOptions.of(settings.browser, context_arguments={"ignore_https_errors": unchecked})
        self._credentials = read_credentials(settings.browser.http_credentials)

    async def log_in(self, login: str) -> dict[str, Any]:
        """Log in to a site and return Playwright's storage state after verifying the login.

        Raises `UsageError` without an account or its password, `BoundaryError` if the site can't be reached or rejects
        the login.
        """
        site, account = find_account(self._settings, login)
        secret = read_password(login, account)
        async with self._session(login, {}) as session:
            await self._open(session, login, site.login_page)
            if site.account_field:
                await self._fill(session, login, "account_field", account.account)
                # The form may ask for the password on its next page.
                if not await _locator(session.page, site.password_field).filter(visible=True).count():
                    await self._submit(session, login, "account_field")
            await self._fill(session, login, "password_field", secret)
            await self._submit(session, login, "password_field")
            complaint = await self._complaint(session)
            if why := await self._check_session(session, login):
                detail = when(complaint, f"; it said: {complaint}")
                raise BoundaryError(
                    FailureKind.ENVIRONMENT_ERROR,
                    f"{login} did not let {account.account} in: {why}{detail}",
                    hint=f"check {account_key(login)}.account and the variable {account.password_env_var}, and that "
                    f"this role may see {site.proof_page or 'the first page'}, then: {login_command(login)}",
                )
            async with session.guard("keeping the login"):
                return dict(await session.page.context.storage_state())

    async def check_session(self, login: str, state: Path) -> str:
        """Return why a site seems to reject a stored login; empty if it accepts it.

        Raises `BoundaryError` if the site can't be reached, or the login can't be read.
        """
        async with self._session(login, {"storage_state": str(state)}) as session:
            return await self._check_session(session, login)

    async def _check_session(self, session: BrowserSession, login: str) -> str:
        known, _ = find_account(self._settings, login)
        status = await self._open(session, login, known.proof_page, refusals=True)
        if status >= 400:
            return f"{session.url} answers with status {status}"
        form, proof = f"{known.url}{known.login_page}", f"{known.url}{known.proof_page}"
        if _is_below(session.url, form) and not _is_below(proof, form):
            return f"{proof} leads to the login page"
        if known.proof:
            there = await self._appears(session, _locator(session.page, known.proof).first)
            return when(not there, f"{session.url} does not have {site_key(login)}.proof, {known.proof!r}")
        async with session.guard("looking for a login form"):
            shown = await session.page.locator(_PASSWORD_SHOWN).count()
        return when(shown, f"{session.url} asks for a password")

    async def _open(self, session: BrowserSession, login: str, page: str, *, refusals: bool = False) -> int:
        """Open a page of a site and return its status. Raises `BoundaryError` if it can't be loaded.

        `refusals`: accept status codes from 400 to 499.
        """
        url = f"{find_account(self._settings, login)[0].url}{page}"
        try:
            status = await session.goto(url)
        except BoundaryError as error:
            hint = explain_unreachable(site_key(login), str(error))
            raise BoundaryError(error.kind, f"{login}: {url} can't be opened: {error}", hint=hint) from error
        if status >= (500 if refusals else 400):
            message = f"{login}: {url} answers with status {status}"
            hint = f"start the site, or fix {site_key(login)}.url"
            if status == HTTPStatus.UNAUTHORIZED:
                hint = f"name its user and password in browser.http_credentials, or fix {site_key(login)}.login_page"
            raise BoundaryError(FailureKind.NAVIGATION_FAILED, message, hint=hint)
        return status

    async def _fill(self, session: BrowserSession, login: str, place: str, text: str) -> None:
        where = str(getattr(find_account(self._settings, login)[0], place))
        field = await self._visible(session, login, place, where)
        async with session.guard(f"filling in {where!r}"):
            await field.fill(text)

    async def _submit(self, session: BrowserSession, login: str, last: str) -> None:
        """Submit the form after its last field, and wait for the next page, if there is one."""
        known, _ = find_account(self._settings, login)
        send = await self._visible(session, login, "submit", known.submit) if known.submit else None
        field = await self._visible(session, login, last, str(getattr(known, last)))
        limit = self._options.navigation_timeout
        async with session.guard("sending the login", limit + 1):
            from playwright.async_api import TimeoutError as PlaywrightTimeout

            try:
                async with session.page.expect_navigation(wait_until="load", timeout=limit * 1000):
                    await (send.click(no_wait_after=True) if send else field.press("Enter", no_wait_after=True))
            except PlaywrightTimeout:
                return  # a page that logs in without navigation; the login is verified next

    async def _visible(self, session: BrowserSession, login: str, place: str, where: str) -> Locator:
        """Return the element at a location of the login form. Raises `BoundaryError` if there is none."""
        locator = _locator(session.page, where).filter(visible=True).first
        if await self._appears(session, locator):
            return locator
        raise BoundaryError(
            FailureKind.ENVIRONMENT_ERROR,
            f"{login}: {session.url} does not show {site_key(login)}.{place}, {where!r}",
            hint=f"look at the page's login form, then: -s '{site_key(login)}.{place}=...'",
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
    async def _session(self, login: str, arguments: dict[str, Any]) -> AsyncIterator[BrowserSession]:
        given = replace(self._options, context_arguments={**self._options.context_arguments, **arguments})
        url = find_account(self._settings, login)[0].url
        session = await self._browsers().session(given.authenticate(url, self._credentials))
        try:
            yield session
        finally:
            await session.close()


@asynccontextmanager
async def open_login_manager(settings: Settings) -> AsyncIterator[LoginManager]:
    """Yield a manager with its own browser, behind a proxy that allows the sites."""
    async with AsyncExitStack() as stack:
        rules = AddressRules.of(settings.browser.private_hosts).with_names(list_site_hosts(settings))
        gate = await stack.enter_async_context(EgressProxy(rules, list_unchecked_hosts(settings)))
        # As in episodes: a remote browser can't reach our loopback address.
        pool = BrowserPool(settings.browser, when(not settings.browser.cdp_urls, gate.address))
        browsers = await stack.enter_async_context(pool)
        yield LoginManager(settings, lambda: browsers)


def list_site_hosts(settings: Settings) -> tuple[str, ...]:
    """Return the hosts of the sites, which may be reached although they are private."""
    hosts = (urlsplit(site.url).hostname for site in settings.sites.values())
    return tuple(dict.fromkeys(host for host in hosts if host))


def list_unchecked_hosts(settings: Settings) -> set[str]:
    """Return the hosts whose certificates are not checked. Raises `SettingsError` if others could not be checked."""
    unchecked = {urlsplit(site.url).hostname or "" for site in settings.sites.values() if site.ignore_https_errors}
    if unchecked and settings.browser.cdp_urls:
        raise SettingsError(
            "sites: ignore_https_errors: a remote browser would accept the certificates of all hosts",
            hint="unset browser.cdp_urls, or give the remote browser's machine the site's certificate",
        )
    return unchecked


def explain_unreachable(key: str, reason: str) -> str:
    """Return what to do about a site, named by its key in the settings, that can't be opened."""
    if "CERT" in reason.upper():
        return f"trust its certificate on this machine, or -s {key}.ignore_https_errors=true"
    return f"start the site, or fix {key}.url"


def name_login(site: str, role: str) -> str:
    """Return the name of a role's login."""
    return site if role == DEFAULT_ROLE else f"{site}@{role}"


def site_key(login: str) -> str:
    """Return the key of a login's site in the settings."""
    return f"sites.{login.partition('@')[0]}"


def account_key(login: str) -> str:
    """Return the key of a login's account in the settings."""
    return f"{site_key(login)}.accounts.{login.partition('@')[2] or DEFAULT_ROLE}"


def login_command(login: str) -> str:
    """Return the command that logs in."""
    site, _, role = login.partition("@")
    return f"webgym login {site}{when(role, f' --role {role}')}"


def find_site(settings: Settings, name: str, whose: str = "") -> SiteSettings:
    """Return the settings of a site with an address. Raises `SettingsError`. `whose`: start of its message."""
    known = settings.sites.get(name)
    if known is None or not known.url:
        preset = when(known is None and name in list(WebArenaSite), "-c webarena ")
        raise SettingsError(
            f"{whose}sites.{name}.url is empty: where is the site {name}?",
            hint=f"{preset}-s sites.{name}.url=http://HOST:PORT",
        )
    return known


def find_account(settings: Settings, login: str) -> tuple[SiteSettings, SiteAccount]:
    """Return the settings of a login's site and of its account. Raises `UsageError` without them."""
    site, _, role = login.partition("@")
    role = role or DEFAULT_ROLE
    known = find_site(settings, site)
    if role not in known.accounts:
        there = f"its roles are {', '.join(known.accounts)}" if known.accounts else "it has no accounts"
        raise UsageError(
            f"sites.{site}.accounts: nobody logs in as {role}: {there}",
            hint=f"-s sites.{site}.accounts.{role}.account=NAME -s sites.{site}.accounts.{role}.password_env_var=NAME",
        )
    return known, known.accounts[role]


def read_password(login: str, known: SiteAccount) -> str:
    """Return an account's password. Raises `UsageError` if its variable is not set."""
    name = known.password_env_var
    if not (secret := read_secret(name)):
        raise UsageError(
            f"{account_key(login)}.password_env_var: the variable {name} is not set: "
            f"{login} needs the password of {known.account}",
            hint=f"export {name}=...",
        )
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
