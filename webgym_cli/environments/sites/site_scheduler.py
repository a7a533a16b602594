"""Scheduler of WebArena's sites: URLs, logins, and exclusive access to sites that episodes can't share."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from webgym_cli.config.model import Settings
from webgym_cli.config.webarena import Isolation
from webgym_cli.environments.browser.pool import BrowserPool
from webgym_cli.environments.sites.login import (
    LoginManager,
    find_account,
    list_site_hosts,
    open_login_manager,
    read_password,
)
from webgym_cli.environments.sites.login_store import LoginStore, login_sites, sort_sites, task_sites
from webgym_cli.environments.sites.reset import reset_site
from webgym_cli.errors import BoundaryError, MissingStageError, SettingsError, StoreError
from webgym_cli.jobs.workers import gather_or_cancel
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Task
from webgym_cli.records.webarena import WebArenaSite

# Seconds between two attempts to lock a site held by another process.
_LOOK_AGAIN = 0.2
_OTHER_FOLDER = "choose another webarena.auth_folder"
# Seconds for which a verified login of a shared site is trusted.
_BELIEVED = 60.0


class SiteScheduler:
    """Gives episodes access to the configured sites; one per pool of environments."""

    def __init__(self, settings: Settings, browsers: Callable[[], BrowserPool] | None = None) -> None:
        """`browsers`: returns browsers behind a proxy that allows `hosts`; None: each login starts its own."""
        self._settings = settings
        self._browsers = browsers
        self._states = LoginStore.of(settings.webarena)
        self._turns: defaultdict[WebArenaSite, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._doors: defaultdict[WebArenaSite, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._seen: dict[WebArenaSite, float] = {}
        self.hosts = list_site_hosts(settings)
        """Hosts of the sites, which must be reachable although they are private."""

    def address(self, text: str) -> str:
        """Return a text with the sites' URLs in place of placeholders like `__SHOPPING__`.

        Raises `SettingsError` for a site without URL.
        """
        for site in WebArenaSite:
            if site.placeholder in text:
                text = text.replace(site.placeholder, _url(self._settings, site))
        return text

    def storage_state(self, task: Task) -> Path | None:
        """Return the login file with which a task starts; None without login.

        Call it within `reserve`, which ensures valid logins. Raises `BoundaryError` for a missing or expired one,
        `UsageError` if two sites' logins conflict.
        """
        sites = login_sites(task)
        for site in sites:
            if fault := self._states.fault(site):
                raise BoundaryError(
                    FailureKind.ENVIRONMENT_ERROR, f"the login of {site} is {fault}", hint=f"webgym login {site}"
                )
        return self._states.join(sites) if sites else None

    @asynccontextmanager
    async def reserve(self, sites: Sequence[WebArenaSite]) -> AsyncIterator[None]:
        """Reserve sites for one episode: wait for exclusive ones, reset those with a hook, and check the logins.

        First come, first served, within this process and among processes with the same `auth_folder`. All sites are
        locked in one global order, which prevents deadlocks. Raises `BoundaryError` if a reset or login fails.
        """
        known, wanted = self._settings.webarena, sort_sites(sites)
        async with AsyncExitStack() as stack:
            for site in wanted:
                if known.site(site).isolation != "parallel":
                    await stack.enter_async_context(self._lock_exclusively(site))
            await gather_or_cancel(*(self._reset(site) for site in wanted if known.site(site).isolation == "reset"))
            for site in wanted:
                if not self._states.fault(site).startswith("missing"):
                    await self._enter(site)
            yield

    @asynccontextmanager
    async def _lock_exclusively(self, site: WebArenaSite) -> AsyncIterator[None]:
        """Hold a site exclusively on this host."""
        async with self._turns[site]:
            # The waiting process holds `next`, so that another process can't pass the site on among its own episodes
            # forever.
            following, lock = (self._lock(f"{site}.{name}") for name in ("next", "lock"))
            await _acquire_lock(following)
            try:
                await _acquire_lock(lock)
            finally:
                following.release()
            try:
                yield
            finally:
                lock.release()

    def _lock(self, name: str) -> FileLock:
        try:
            self._states.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"{self._states.folder}: can't be made: {error.strerror}"
            raise StoreError(message, hint=_OTHER_FOLDER) from error
        return FileLock(self._states.folder / name)

    async def _reset(self, site: WebArenaSite) -> None:
        known = self._settings.webarena
        await reset_site(site, known.site(site), known.reset_timeout, self._states.folder / f"{site}.reset.log")

    async def _enter(self, site: WebArenaSite) -> None:
        """Ensure a valid login: an earlier episode or a reset may have ended it."""
        async with self._doors[site]:
            shared = self._settings.webarena.site(site).isolation == "parallel"
            if shared and time.monotonic() - self._seen.get(site, -_BELIEVED) < _BELIEVED:
                return
            async with self._open_logins() as logins:
                await _renew(self._settings, self._states, logins, site)
            self._seen[site] = time.monotonic()

    @asynccontextmanager
    async def _open_logins(self) -> AsyncIterator[LoginManager]:
        if self._browsers is not None:
            yield LoginManager(self._settings, self._browsers)
            return
        async with open_login_manager(self._settings) as logins:
            yield logins


def require_sites(settings: Settings, tasks: Iterable[Task]) -> None:
    """Check that the settings provide what WebArena tasks need; other tasks need nothing.

    Raises `SettingsError` or `UsageError` with task, site and setting, `MissingStageError` for a missing or expired
    login that requires `webgym login`.
    """
    states, logins = LoginStore.of(settings.webarena), set[WebArenaSite]()
    for task in tasks:
        claimed = task_sites(task)
        for site in claimed:
            _url(settings, site, f"task {task.id}: ")
        logins.update(login_sites(task))
        if settings.rollout.executor == "ray" and (alone := exclusive_sites(settings, task)):
            site = sort_sites(alone)[0]
            raise SettingsError(
                f"task {task.id}: {site} takes one episode at a time (webarena.{site}.isolation), which can't be seen "
                "to from several nodes",
                hint=f"-s rollout.executor=local, or -s webarena.{site}.isolation=parallel where nothing is changed",
            )
    for site in sort_sites(logins):
        known, fault = find_account(settings, site), states.fault(site)
        if fault and settings.webarena.login == "auto":
            read_password(site, known)
        elif fault:
            raise _no_login(site, fault)


async def log_in_to_sites(settings: Settings, tasks: Iterable[Task]) -> tuple[WebArenaSite, ...]:
    """Ensure that all logins of tasks are valid; return the sites that were logged in to.

    Raises `MissingStageError` for one that requires `webgym login`, `BoundaryError` if a site can't be reached or
    rejects the login, `UsageError` if two logins conflict.
    """
    states, wanted = LoginStore.of(settings.webarena), {login_sites(task) for task in tasks}
    sites = sort_sites(site for logins in wanted for site in logins)
    if not sites:
        return ()
    async with open_login_manager(settings) as manager:
        entered = [site for site in sites if await _renew(settings, states, manager, site)]
    for logins in sorted(wanted - {()}):
        states.join(logins)
    return tuple(entered)


def map_isolation(settings: Settings, tasks: Iterable[Task]) -> dict[str, Isolation]:
    """Return the isolation of the tasks' sites."""
    sites = sort_sites(site for task in tasks for site in task_sites(task))
    return {site.value: settings.webarena.site(site).isolation for site in sites}


def exclusive_sites(settings: Settings, task: Task) -> frozenset[WebArenaSite]:
    """Return the sites on which no other episode may run together with this task."""
    return frozenset(site for site in task_sites(task) if settings.webarena.site(site).isolation != "parallel")


def describe_isolation(isolation: Mapping[str, str]) -> str:
    """Return a one-line description of the isolation."""
    words = {"parallel": "any number of episodes", "serial": "one at a time", "reset": "one at a time, after a reset"}
    return "sites: " + "; ".join(f"{site} {words[kind]}" for site, kind in isolation.items())


async def _renew(settings: Settings, states: LoginStore, logins: LoginManager, site: WebArenaSite) -> bool:
    """Renew an unusable login. Returns whether that was necessary; raises if only a user may do it."""
    why = states.fault(site) or await logins.check_session(site, states.path((site,)))
    if not why:
        return False
    if settings.webarena.login == "manual":
        raise _no_login(site, why)
    states.save(site, await logins.log_in(site))
    return True


def _no_login(site: WebArenaSite, why: str) -> MissingStageError:
    return MissingStageError(f"the login of {site} is of no use: {why}", hint=f"webgym login {site}")


def _url(settings: Settings, site: WebArenaSite, whose: str = "") -> str:
    url = settings.webarena.site(site).url
    if not url:
        hint = f"-s webarena.{site}.url=http://HOST:PORT"
        raise SettingsError(f"{whose}webarena.{site}.url is empty: where is the site {site}?", hint=hint)
    return url


async def _acquire_lock(lock: FileLock) -> None:
    """Wait for a lock; a cancelled wait holds nothing. Raises `StoreError` if locking is impossible."""
    while True:
        try:
            lock.acquire(timeout=0)
            return
        except Timeout:
            await asyncio.sleep(_LOOK_AGAIN)
        except (OSError, NotImplementedError) as error:  # the latter from a file system without locks
            raise StoreError(f"{lock.lock_file}: can't be locked: {error}", hint=_OTHER_FOLDER) from error
