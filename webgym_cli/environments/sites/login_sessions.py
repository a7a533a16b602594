"""Logins of episodes: a session for each where several share a site, renewed where the site no longer accepts it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.environments.sites.accounts import Login, LoginStore, describe_renewal, find_account
from webgym_cli.environments.sites.login import LoginManager
from webgym_cli.errors import BoundaryError, MissingStageError
from webgym_cli.util.files import read_json


class LoginSessions:
    """Valid logins of one process's episodes."""

    def __init__(self, settings: Settings, logins: LoginManager, states: LoginStore) -> None:
        self._settings = settings
        self._logins = logins
        self._states = states
        self._doors: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._unused: dict[str, list[dict[str, Any]]] = {}
        """Sessions of shared sites that no episode uses at the moment, as Playwright's storage states."""

    def may_multiply(self, login: Login) -> bool:
        """Whether each episode gets a session of its own: several may run at once, and webgym may log in."""
        known, account = find_account(self._settings, login)
        return known.is_shared and known.login == "auto" and not account.storage_state

    async def renew(self, login: Login) -> None:
        """Ensure that the stored login is valid: an earlier episode or a reset may have ended it."""
        async with self._doors[login]:
            await renew_login(self._settings, self._states, self._logins, login)

    @asynccontextmanager
    async def reserve(self, login: Login) -> AsyncIterator[dict[str, Any]]:
        """Yield a valid session that no other episode of this process uses, if the site lets in that often.

        With one for all, an episode that logged out ended those of the others, whose checks then gave them 0.
        """
        if self._states.fault(login):  # as too old: the file has the newest one
            self._unused[login] = []
        elif login not in self._unused:
            self._unused[login] = [read_json(self._states.path((login,)))]
        unused = self._unused[login]
        state = unused.pop() if unused else None
        if state is None or await self._logins.check_session(login, state):
            state = await self._log_in(login)
        try:
            yield state
        finally:
            if state not in unused:
                unused.append(state)

    async def _log_in(self, login: Login) -> dict[str, Any]:
        """Return a new session, or the newest one if the site refuses another while it accepts that."""
        async with self._doors[login]:  # one after another, as sites limit the logins of a moment
            try:
                state = await self._logins.log_in(login)
            except BoundaryError:
                newest: dict[str, Any] = read_json(self._states.path((login,)))
                if await self._logins.check_session(login, newest):
                    raise
                return newest
            self._states.save(login, state)
            return state


async def renew_login(settings: Settings, states: LoginStore, logins: LoginManager, login: Login) -> bool:
    """Renew an unusable login. Returns whether that was necessary; raises if only a user may do it."""
    why = states.fault(login) or await logins.check_session(login, states.path((login,)))
    if not why:
        return False
    site, account = find_account(settings, login)
    if site.login == "manual" or account.storage_state:
        raise no_login(settings, login, why)
    states.save(login, await logins.log_in(login))
    return True


def no_login(settings: Settings, login: Login, why: str) -> MissingStageError:
    """Return the error of a login that only a user may renew."""
    hint = describe_renewal(login, find_account(settings, login)[1])
    return MissingStageError(f"the login of {login} is of no use: {why}", hint=hint)
