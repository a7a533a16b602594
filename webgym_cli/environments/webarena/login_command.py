"""What `webgym login` does: one login after the other, each with what became of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from webgym_cli.config.model import Settings
from webgym_cli.config.webarena import AccountSite
from webgym_cli.environments.webarena.login import LoginManager, find_account, open_login_manager, read_password
from webgym_cli.environments.webarena.login_store import LoginStore, sort_sites
from webgym_cli.errors import BoundaryError, UsageError
from webgym_cli.records.webarena import WebArenaSite

# `failed`: the site could not be asked, or lets nobody in.
LoginState = Literal["valid", "expired", "missing", "failed"]


@dataclass(frozen=True, slots=True)
class LoginStatus:
    """What is known of the login of a site."""

    site: WebArenaSite
    status: LoginState
    account: str
    file: str
    """Where the login is kept."""
    detail: str = ""
    """Why it is not valid."""
    hint: str = ""
    """What to do about it."""

    def to_json(self) -> dict[str, str]:
        """Return the row that is printed."""
        keys = ("site", "status", "account", "file", "detail")
        return {key: str(getattr(self, key)) for key in keys}


# Hears of each login at once: the next one may take a while.
OnLoginStatus = Callable[[LoginStatus], None]


def select_sites(settings: Settings, names: Sequence[str]) -> tuple[WebArenaSite, ...]:
    """Return the sites of these names; without names all that have an address and an account.

    Raises `UsageError` for a site that there is not, that has no address or no account, and where there is none.
    """
    if unknown := [name for name in names if name not in list(WebArenaSite)]:
        raise UsageError(f"there is no site {unknown[0]!r}", hint=f"the sites are {', '.join(WebArenaSite)}")
    wanted = sort_sites(
        map(WebArenaSite, names) if names else filter(lambda site: _has_account(settings, site), WebArenaSite)
    )
    for site in wanted:
        find_account(settings, site)
    if not wanted:
        raise UsageError("no site has an address", hint="webgym login -s webarena.shopping.url=http://HOST:PORT")
    return wanted


async def log_in(settings: Settings, sites: Iterable[WebArenaSite], on_status: OnLoginStatus) -> list[LoginStatus]:
    """Log in to each site and keep the login. Raises `UsageError` before the first where a password is not known."""
    sites, states = tuple(sites), LoginStore.of(settings.webarena)
    for site in sites:
        read_password(site, find_account(settings, site))

    async def enter(logins: LoginManager, entry: LoginStatus) -> LoginStatus:
        states.save(entry.site, await logins.log_in(entry.site))
        return entry

    return await _each(settings, sites, states, enter, on_status)


async def check_logins(
    settings: Settings, sites: Iterable[WebArenaSite], on_status: OnLoginStatus
) -> list[LoginStatus]:
    """Show each login to its site, and say what the site makes of it."""
    states = LoginStore.of(settings.webarena)

    async def look(logins: LoginManager, entry: LoginStatus) -> LoginStatus:
        fault = states.fault(entry.site)
        if fault in ("missing", "unreadable"):
            return replace(entry, status="missing", detail=f"{entry.file} is {fault}")
        why = fault or await logins.check_session(entry.site, states.path((entry.site,)))
        return replace(entry, status="expired", detail=why) if why else entry

    return await _each(settings, tuple(sites), states, look, on_status)


async def _each(
    settings: Settings,
    sites: Sequence[WebArenaSite],
    states: LoginStore,
    work: Callable[[LoginManager, LoginStatus], Awaitable[LoginStatus]],
    on_status: OnLoginStatus,
) -> list[LoginStatus]:
    entries: list[LoginStatus] = []
    async with open_login_manager(settings) as logins:
        for site in sites:
            path = states.path((site,))
            entry = LoginStatus(site, "valid", find_account(settings, site).account, str(path))
            try:
                entry = await work(logins, entry)
            except BoundaryError as error:
                entry = replace(entry, status="failed", detail=str(error), hint=error.hint)
            on_status(entry)
            entries.append(entry)
    return entries


def _has_account(settings: Settings, site: WebArenaSite) -> bool:
    known = settings.webarena.site(site)
    return isinstance(known, AccountSite) and bool(known.url and known.account)
