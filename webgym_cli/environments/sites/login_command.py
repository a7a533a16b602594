"""Implementation of `webgym login`: logs in site by site and reports each result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import Field

from webgym_cli.config.model import Settings
from webgym_cli.config.sites import DEFAULT_ROLE
from webgym_cli.environments.sites.accounts import Login, LoginStore, describe_renewal, find_account, read_password
from webgym_cli.environments.sites.login import LoginManager, open_login_manager
from webgym_cli.errors import BoundaryError, UsageError
from webgym_cli.records.base import Record


class LoginStatus(Record):
    """Status of a site's login."""

    site: str
    role: str
    """Role of the account; a site's only one is usually `user`."""
    status: Literal["valid", "expired", "missing", "failed"]
    """`failed`: the site could not be reached, or rejected the login."""
    account: str
    file: str
    """File of the login."""
    detail: str = ""
    """Why it is not valid."""
    hint: str = Field(default="", exclude=True)
    """How to fix it; not part of the printed row."""


def select_logins(settings: Settings, names: Sequence[str], role: str = "") -> tuple[Login, ...]:
    """Return the logins of the sites with these names, else of all that have a URL; `role`: of that role alone.

    Raises `UsageError` for an unknown site, one without URL or account, and if there are none.
    """
    if unknown := [name for name in names if name not in settings.sites]:
        there = f"the sites are {', '.join(settings.sites)}" if settings.sites else "-c FILE with a table sites"
        raise UsageError(f"there is no site {unknown[0]!r}", hint=there)
    wanted: list[Login] = []
    for name in names or [name for name, site in settings.sites.items() if site.url]:
        roles = list(settings.sites[name].accounts)
        if names and (role or not roles):
            find_account(settings, Login.of(name, role or DEFAULT_ROLE))
        wanted += [Login.of(name, known) for known in roles if role in ("", known)]
    for login in wanted:
        find_account(settings, login)
    if not wanted:
        raise UsageError("no site has an address and an account", hint="webgym login -c FILE, with a table sites")
    return tuple(wanted)


async def visit_sites(
    settings: Settings, wanted: Sequence[Login], on_status: Callable[[LoginStatus], None], *, check: bool
) -> list[LoginStatus]:
    """Log in to each site and store the login; with `check`, only verify the stored logins.

    `on_status` is called for each login immediately, since the next one may take a while.
    Raises `UsageError` before the first login if a password is missing.
    """
    states, entries = LoginStore.of(settings), list[LoginStatus]()
    for login in wanted:
        account = find_account(settings, login)[1]
        if not check and not account.storage_state:
            read_password(login, account)
    async with open_login_manager(settings) as logins:
        for login in wanted:
            account = find_account(settings, login)[1]
            path = str(states.path((login,)))
            name = account.account or path
            hint = describe_renewal(login, account)
            entry = LoginStatus(site=login.site, role=login.role, status="valid", account=name, file=path, hint=hint)
            try:
                if check or account.storage_state:
                    entry = await _check(states, logins, entry, login)
                else:
                    states.save(login, await logins.log_in(login))
            except BoundaryError as error:
                entry = entry.model_copy(update={"status": "failed", "detail": str(error), "hint": error.hint})
            on_status(entry)
            entries.append(entry)
    return entries


async def _check(states: LoginStore, logins: LoginManager, entry: LoginStatus, login: Login) -> LoginStatus:
    fault = states.fault(login)
    if fault and not fault.startswith("expired"):
        return entry.model_copy(update={"status": "missing", "detail": f"{entry.file} is {fault}"})
    why = fault or await logins.check_session(login, states.path((login,)))
    return entry.model_copy(update={"status": "expired", "detail": why}) if why else entry
