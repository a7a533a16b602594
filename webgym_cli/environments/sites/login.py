"""Login to sites with a real browser, and check of existing logins."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from webgym_cli.config.model import Settings
from webgym_cli.environments.browser.egress_proxy import EgressProxy
from webgym_cli.environments.browser.options import SessionOptions, read_credentials
from webgym_cli.environments.browser.pool import BrowserPool
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.environments.sites.accounts import Login, explain_unreachable, find_account, make_gate, read_password
from webgym_cli.errors import BoundaryError
from webgym_cli.jobs.workers import race
from webgym_cli.records.failure import FailureKind
from webgym_cli.util.optional import when
from webgym_cli.util.text import name_first

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page, Request

# Elements with a site's error messages.
_ALERTS = "[role=alert], .message-error, .alert, .error, .flash-alert"
_LONGEST_ALERT = 200
# Fields and buttons, and their names, which are never what was typed.
_CONTROLS = "input, button, [role=button]"
_NAMES_OF = """(shown) => shown.map((one) => (one.labels?.[0]?.innerText || one.ariaLabel || one.innerText
  || (["submit", "button"].includes(one.type) ? one.value : one.alt || one.placeholder || one.name) || "")
).map((name) => name.replace(/\\s+/g, " ").trim()).filter(Boolean)"""
# Maximum number of names in a message.
_NAMED = 8


class LoginManager:
    """Logs in to the configured sites, each time in a fresh browser context."""

    def __init__(self, settings: Settings, browsers: Callable[[], BrowserPool], gate: EgressProxy) -> None:
        """`browsers`: returns the browser pool, behind the proxy `gate` that allows the sites."""
        self._settings = settings
        self._browsers = browsers
        self._gate = gate
        unchecked = {"ignore_https_errors": bool(gate.unchecked)}
        self._options = SessionOptions.of(settings.browser, context_arguments=unchecked, watch_traffic=True)
        self._credentials = read_credentials(settings.browser.http_credentials)

    async def log_in(self, login: Login) -> dict[str, Any]:
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
            # Without a word of the site this is how a question for a second factor, or the same form again, is seen.
            reply = f"it said: {complaint}"
            if not complaint:
                reply = f"after the form {_drop_query(session.url)} showed {await self._list_controls(session)}"
            if why := await self._check_session(session, login):
                raise BoundaryError(
                    FailureKind.ENVIRONMENT_ERROR,
                    f"{login} did not let {account.account} in: {why}; {reply}",
                    hint=f"check {login.account_key}.account and the variable {account.password_env_var}, and that "
                    f"this role sees {when(site.proof, f'{site.proof!r} on ')}{site.proof_page or 'the first page'}, "
                    f"then: {login.command}",
                )
            return await self._keep(session, login)

    async def _keep(self, session: BrowserSession, login: Login) -> dict[str, Any]:
        """Return the storage state of a login that another context can start with. Raises `BoundaryError`."""
        why = ""
        for indexed_db in (False, True):  # not without need: it may be large, or hold what can't be copied
            async with session.guard("keeping the login"):
                state = dict(await session.page.context.storage_state(indexed_db=indexed_db))
            # Without this trial each episode started logged out, and was scored 0 where its first page needs no login.
            if not (why := await self.check_session(login, state)):
                return state
        raise BoundaryError(
            FailureKind.ENVIRONMENT_ERROR,
            f"{login}: with the cookies, localStorage and IndexedDB of the login another browser context is not let in "
            f"({why}), as when the site keeps it in sessionStorage",
            hint="give its tasks no role, and a set-up function that returns a start_url which logs in",
        )

    async def check_session(self, login: Login, state: Path | dict[str, Any]) -> str:
        """Return why a site seems to reject a stored login; empty if it accepts it.

        Raises `BoundaryError` if the site can't be reached, or the login can't be read.
        """
        async with self._session(login, {"storage_state": state}) as session:
            return await self._check_session(session, login)

    async def _check_session(self, session: BrowserSession, login: Login) -> str:
        known, _ = find_account(self._settings, login)
        status = await self._open(session, login, known.proof_page, refusals=True)
        if status >= 400:
            return f"{session.url} answers with status {status}"
        if why := await self.find_login_page(session, login, f"{known.url}{known.proof_page}"):
            return why
        if known.proof:
            there = await self._appears(session, _locator(session.page, known.proof).first, f"{login.site_key}.proof")
            if there:
                return ""
            async with session.guard("reading the title"):
                title = await session.page.title()
            return f"{session.url} ({title!r}) does not have {login.site_key}.proof, {known.proof!r}"
        shown = await self._shows_any(session, "input[type=password]", known.password_field)
        return when(shown, f"{session.url} asks for a password")

    async def find_login_page(self, session: BrowserSession, login: Login, url: str) -> str:
        """Return why the page that is shown in place of the one at a URL is a login page; empty if it is none."""
        known, _ = find_account(self._settings, login)
        form = f"{known.url}{known.login_page}"
        if known.login_page and _is_below(session.url, form) and not _is_below(url, form):
            return f"{url} leads to the login page"
        # A sign-on on another host may ask for the name alone.
        is_elsewhere = urlsplit(session.url).netloc != urlsplit(url).netloc
        if is_elsewhere and await self._shows_any(session, known.account_field, known.password_field):
            return f"{url} leads to {_drop_query(session.url)}, which asks for a login"
        return ""

    async def _shows_any(self, session: BrowserSession, *places: str) -> bool:
        async with session.guard("looking for a login form"):
            shown = [await _locator(session.page, one).filter(visible=True).count() for one in places if one]
        return any(shown)

    async def _open(self, session: BrowserSession, login: Login, page: str, *, refusals: bool = False) -> int:
        """Open a page of a site and return its status. Raises `BoundaryError` if it can't be loaded.

        `refusals`: accept status codes from 400 to 499.
        """
        url = address = f"{find_account(self._settings, login)[0].url}{page}"

        def note(request: Request) -> None:
            nonlocal address
            if request.is_navigation_request() and request.frame.parent_frame is None:
                address = request.url

        session.page.on("request", note)
        try:
            status = await session.goto(url)
        except BoundaryError as error:  # the browser only says that there is no tunnel, perhaps to another host
            why = self._explain(address) or str(error)
            hint = explain_unreachable(login.site_key, why)
            raise BoundaryError(error.kind, f"{login}: {url} can't be opened: {why}", hint=hint) from error
        if status >= (500 if refusals else 400):
            why = self._explain(session.url) or f"{session.url} answers with status {status}"
            message, hint = f"{login}: {why}", explain_unreachable(login.site_key, why)
            if status == HTTPStatus.UNAUTHORIZED:
                hint = f"name its user and password in browser.http_credentials, or fix {login.site_key}.login_page"
            raise BoundaryError(FailureKind.NAVIGATION_FAILED, message, hint=hint)
        return status

    def _explain(self, url: str) -> str:
        """Return why the proxy answered in place of a page's server; empty if it did not."""
        return self._gate.refusal(url) or self._gate.find_silent(url)

    async def _fill(self, session: BrowserSession, login: Login, place: str, text: str) -> None:
        where = str(getattr(find_account(self._settings, login)[0], place))
        field = await self._visible(session, login, place, where)
        async with session.guard(f"filling in {where!r}"):
            await field.fill(text)

    async def _submit(self, session: BrowserSession, login: Login, last: str) -> None:
        """Submit the form after its last field, and wait until another page, or what replaces the form, is there."""
        known, _ = find_account(self._settings, login)
        send = await self._visible(session, login, "submit", known.submit) if known.submit else None
        field = await self._visible(session, login, last, str(getattr(known, last)))
        limit, clock = self._options.navigation_timeout, asyncio.get_running_loop()

        async def send_form() -> None:
            await (send.click(no_wait_after=True) if send else field.press("Enter", no_wait_after=True))
            await field.wait_for(state="hidden", timeout=limit * 1000)

        async with session.guard("sending the login", limit + self._settings.browser.max_idle_wait + 1):
            from playwright.async_api import TimeoutError as PlaywrightTimeout

            traffic = await session.traffic()
            traffic.mark()
            with suppress(PlaywrightTimeout):  # the form stays; the login is verified next
                async with race(session.page.wait_for_event("load", timeout=0), send_form()) as (_, sent):
                    if sent.done():
                        sent.result()
                    await session.page.wait_for_load_state("load")
            # A page that logs in without navigation may hide the form before the site has answered.
            end = clock.time() + self._settings.browser.max_idle_wait
            while traffic.busy and clock.time() < end:
                await traffic.change(end - clock.time())

    async def _visible(self, session: BrowserSession, login: Login, place: str, where: str) -> Locator:
        """Return the element at a location of the login form. Raises `BoundaryError` if there is none."""
        locator = _locator(session.page, where).filter(visible=True).first
        if await self._appears(session, locator, f"{login.site_key}.{place}"):
            return locator
        shown = await self._list_controls(session)
        raise BoundaryError(
            FailureKind.ENVIRONMENT_ERROR,
            f"{login}: {session.url} does not show {login.site_key}.{place}, {where!r}, but {shown}",
            hint=f"look at the page's login form, then: -s '{login.site_key}.{place}=...'"
            + when(place == "submit", " (empty: Enter, on each page of the form)"),
        )

    async def _list_controls(self, session: BrowserSession) -> str:
        async with session.guard("listing the form"):
            names = await session.page.locator(_CONTROLS).filter(visible=True).evaluate_all(_NAMES_OF)
        return name_first([repr(name) for name in names], _NAMED) or "nothing with a name"

    async def _appears(self, session: BrowserSession, locator: Locator, key: str) -> bool:
        """Whether an element exists or appears while the page settles."""
        from playwright.async_api import TimeoutError as PlaywrightTimeout

        seconds = self._settings.browser.max_idle_wait
        async with session.guard(f"looking for {key}", self._options.action_timeout + seconds):
            if seconds and not await locator.count():
                with suppress(PlaywrightTimeout):
                    await locator.wait_for(state="attached", timeout=seconds * 1000)
            return await locator.count() > 0

    async def _complaint(self, session: BrowserSession) -> str:
        """Return the page's error message, or why it could not be reached, if any."""
        if why := self._explain(session.url):
            return why
        async with session.guard("reading what the page says"):
            texts = await session.page.locator(_ALERTS).filter(visible=True).all_inner_texts()
        return " ".join(" ".join(texts).split())[:_LONGEST_ALERT]

    @asynccontextmanager
    async def _session(self, login: Login, arguments: dict[str, Any]) -> AsyncIterator[BrowserSession]:
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
        gate = await stack.enter_async_context(make_gate(settings))
        browsers = await stack.enter_async_context(BrowserPool(settings.browser, gate.address))
        yield LoginManager(settings, lambda: browsers, gate)


def _locator(page: Page, where: str) -> Locator:
    kind, _, words = where.partition("=")
    if kind == "label":
        return page.get_by_label(words)
    if kind == "button":
        return page.get_by_role("button", name=words)
    if kind == "text":
        return page.get_by_text(words)
    return page.locator(f"[name={json.dumps(words, ensure_ascii=False)}]" if kind == "name" else where)


def _drop_query(url: str) -> str:
    """Return a URL without what a sign-on adds to it: long, and at times a secret."""
    return url.partition("?")[0]


def _is_below(url: str, page: str) -> bool:
    """Whether a URL equals a page's URL or is below it."""
    path, top = (urlsplit(text).path.rstrip("/") + "/" for text in (url, page))
    return path.startswith(top)
