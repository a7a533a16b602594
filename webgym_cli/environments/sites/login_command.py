"""Implementation of `webgym login`: logs in site by site and reports each result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import Field

from webgym_cli.config.model import Settings
from webgym_cli.config.webarena import AccountSite
from webgym_cli.environments.sites.login import LoginManager, find_account, open_login_manager, read_password
from webgym_cli.environments.sites.login_store import LoginStore, sort_sites
from webgym_cli.errors import BoundaryError, UsageError
from webgym_cli.records.base import Record
from webgym_cli.records.webarena import WebArenaSite

# `failed`: the site could not be reached, or rejected the login.
LoginState = Literal["valid", "expired", "missing", "failed"]


class LoginStatus(Record):
    """Status of a site's login."""

    site: WebArenaSite
    status: LoginState
    account: str
    file: str
    """File of the login."""
    detail: str = ""
    """Why it is not valid."""
    hint: str = Field(default="", exclude=True)
    """How to fix it; not part of the printed row."""


# Called for each login immediately, since the next one may take a while.
OnLoginStatus = Callable[[LoginStatus], None]


def select_sites(settings: Settings, names: Sequence[str]) -> tuple[WebArenaSite, ...]:
    """Return the sites with these names; without names all that have a URL and an account.

    Raises `UsageError` for an unknown site, one without URL or account, and if there are none.
    """
    if unknown := [name for name in names if name not in list(WebArenaSite)]:
        raise UsageError(f"there is no site {unknown[0]!r}", hint=f"the sites are {', '.join(WebArenaSite)}")
    known = {site: settings.webarena.site(site) for site in WebArenaSite}
    with_account = (site for site, its in known.items() if isinstance(its, AccountSite) and its.url and its.account)
    wanted = sort_sites(map(WebArenaSite, names) if names else with_account)
    for site in wanted:
        find_account(settings, site)
    if not wanted:
        raise UsageError("no site has an address", hint="webgym login -s webarena.shopping.url=http://HOST:PORT")
    return wanted


async def visit_sites(
    settings: Settings, sites: Sequence[WebArenaSite], on_status: OnLoginStatus, *, check: bool
) -> list[LoginStatus]:
    """Log in to each site and store the login; with `check`, only verify the stored logins.

    Raises `UsageError` before the first login if a password is missing.
    """
    states, entries = LoginStore.of(settings.webarena), list[LoginStatus]()
    for site in () if check else sites:
        read_password(site, find_account(settings, site))
    async with open_login_manager(settings) as logins:
        for site in sites:
            path, account = str(states.path((site,))), find_account(settings, site).account
            entry = LoginStatus(site=site, status="valid", account=account, file=path)
            try:
                if check:
                    entry = await _check(states, logins, entry)
                else:
                    states.save(site, await logins.log_in(site))
            except BoundaryError as error:
                entry = entry.model_copy(update={"status": "failed", "detail": str(error), "hint": error.hint})
            on_status(entry)
            entries.append(entry)
    return entries


async def _check(states: LoginStore, logins: LoginManager, entry: LoginStatus) -> LoginStatus:
    fault = states.fault(entry.site)
    if fault in ("missing", "unreadable"):
        return entry.model_copy(update={"status": "missing", "detail": f"{entry.file} is {fault}"})
    why = fault or await logins.check_session(entry.site, states.path((entry.site,)))
    return entry.model_copy(update={"status": "expired", "detail": why}) if why else entry
