"""Scheduler of sites: URLs, logins, resets, and exclusive access to sites that episodes can't share."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain
from pathlib import Path

from filelock import FileLock, Timeout

from webgym_cli.config.model import Settings
from webgym_cli.config.sites import Isolation, SiteSettings
from webgym_cli.environments.browser.egress_proxy import EgressProxy
from webgym_cli.environments.browser.pool import BrowserPool
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.environments.episode_start import EpisodeStart
from webgym_cli.environments.sites.accounts import (
    Login,
    LoginStore,
    describe_renewal,
    find_account,
    find_site,
    login_sites,
    read_password,
    sort_sites,
    task_sites,
)
from webgym_cli.environments.sites.login import LoginManager, open_login_manager
from webgym_cli.environments.sites.login_sessions import LoginSessions, no_login, renew_login
from webgym_cli.environments.sites.reset import reset_site
from webgym_cli.environments.sites.site_expert import EXPERTS
from webgym_cli.environments.sites.site_setup import SETUPS, require_setup_fields, require_tenants
from webgym_cli.errors import BoundaryError, SettingsError, StoreError, UsageError
from webgym_cli.jobs.workers import gather_or_cancel
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Task
from webgym_cli.records.webarena import WebArenaSite
from webgym_cli.util.files import read_json
from webgym_cli.util.secrets import add_secret

# Seconds between two attempts to lock a site held by another process.
_LOOK_AGAIN = 0.2
_OTHER_FOLDER = "choose another browser.auth_folder"
# A site that has no entry is only a name for set-up functions and experts.
_ABSENT = SiteSettings(isolation="parallel")


class SiteScheduler:
    """Gives episodes access to the configured sites; one per pool of environments."""

    def __init__(self, settings: Settings, browsers: Callable[[], BrowserPool], gate: EgressProxy) -> None:
        """`browsers`: returns browsers behind the proxy `gate`, which allows the sites."""
        self._settings = settings
        self._logins = LoginManager(settings, browsers, gate)
        self._states = LoginStore.of(settings)
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._sessions = LoginSessions(settings, self._logins, self._states)

    def address(self, text: str) -> str:
        """Return a text with the sites' URLs in place of placeholders like `__SHOPPING__`.

        Raises `SettingsError` for a site without URL.
        """
        for site in sort_sites([*WebArenaSite, *self._settings.sites]):
            if (placeholder := f"__{site.upper()}__") in text:
                text = text.replace(placeholder, find_site(self._settings, site).url)
        return text

    def storage_state(self, task: Task) -> Path | None:
        """Return the login file with which a task starts; None without login.

        Call it within `reserve`, which ensures valid logins. Raises `BoundaryError` for a missing or expired one,
        `UsageError` if two sites' logins conflict.
        """
        logins = login_sites(task)
        for login in logins:
            if fault := self._states.fault(login):
                raise BoundaryError(
                    FailureKind.ENVIRONMENT_ERROR, f"the login of {login} is {fault}", hint=login.command
                )
        return self._states.join(logins) if logins else None

    @asynccontextmanager
    async def start_episode(self, task: Task, episode: str, seed: int) -> AsyncIterator[EpisodeStart]:
        """Reserve a task's sites for one episode, and return how it starts. Raises `BoundaryError`."""
        values = {"episode": episode, "seed": str(seed), "role": task.role}
        async with self.reserve(task_sites(task), login_sites(task), values) as start:
            if start.storage_state is None and (login := self.storage_state(task)):
                start = start.model_copy(update={"storage_state": await asyncio.to_thread(read_json, login)})
            yield self._complete(start, task)

    async def require_login(self, task: Task, start_url: str, session: BrowserSession) -> None:
        """Raise `BoundaryError` if a task with a login starts on a login page: the site ended its session."""
        for login in login_sites(task):
            if why := await self._logins.find_login_page(session, login, self.address(start_url)):
                hint = describe_renewal(login, find_account(self._settings, login)[1])
                raise BoundaryError(FailureKind.ENVIRONMENT_ERROR, f"{login} is not logged in: {why}", hint=hint)

    def _complete(self, start: EpisodeStart, task: Task) -> EpisodeStart:
        """Return a start with the address of its first page, and cookies that have a place."""
        url = start.start_url or task.start_url
        if task.site not in self._settings.sites:
            return start.model_copy(update={"start_url": url})
        site = find_site(self._settings, task.site, f"task {task.id}: ").url
        cookies = start.cookies_for(site)
        for cookie in cookies:
            add_secret(str(cookie.get("value", "")))
        address = url if "://" in url else f"{site}/{url.lstrip('/')}"
        return start.model_copy(update={"start_url": address, "cookies": cookies})

    @asynccontextmanager
    async def reserve(
        self, sites: Sequence[str], logins: Sequence[Login], values: Mapping[str, str]
    ) -> AsyncIterator[EpisodeStart]:
        """Reserve sites for one episode: wait for exclusive ones, reset those with a hook, and check the logins.

        `values`: placeholders of resets. Yields what the resets answered. First come, first served, within this process
        and among processes with the same `auth_folder`. All sites are locked in one global order, which prevents
        deadlocks. Raises `BoundaryError` if a reset or login fails.
        """
        wanted = sort_sites(sites)
        known = {site: self._site(site) for site in wanted}
        async with AsyncExitStack() as stack:
            for site in wanted:
                if not known[site].is_shared:
                    await stack.enter_async_context(self._lock_exclusively(site))
            start = EpisodeStart()
            for answer in await gather_or_cancel(*(self._reset(site, known[site], values) for site in wanted)):
                start = start.updated_by(answer)
            for login in logins:
                if start.storage_state is not None or self._states.fault(login).startswith("missing"):
                    continue
                if len(logins) == 1 and self._sessions.may_multiply(login):
                    own = await stack.enter_async_context(self._sessions.reserve(login))
                    start = start.model_copy(update={"storage_state": own})
                else:
                    await self._sessions.renew(login)
            yield start

    def _site(self, name: str) -> SiteSettings:
        return self._settings.sites.get(name, _ABSENT)

    @asynccontextmanager
    async def _lock_exclusively(self, site: str) -> AsyncIterator[None]:
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
            self._states.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            message = f"{self._states.folder}: can't be made: {error.strerror}"
            raise StoreError(message, hint=_OTHER_FOLDER) from error
        return FileLock(self._states.folder / name)

    async def _reset(self, name: str, site: SiteSettings, values: Mapping[str, str]) -> EpisodeStart:
        if not site.is_reset:
            return EpisodeStart()
        # Resets of one site that run at the same time have a log each.
        own = f".{values['episode']}" if site.isolation == "tenant" else ""
        return await reset_site(name, site, self._states.folder / f"{name}{own}.reset.log", values)


def require_sites(settings: Settings, tasks: Iterable[Task]) -> None:
    """Check that the settings provide what tasks on sites need; other tasks need nothing.

    Raises `SettingsError` or `UsageError` with task, site and setting, `MissingStageError` for a missing or expired
    login that requires `webgym login`.
    """
    states, wanted = LoginStore.of(settings), set[Login]()
    for task in tasks:
        require_setup_fields(task)
        if not _is_only_name(settings, task):
            for site in task_sites(task):
                _require_known(settings, task, site)
                require_tenants(task, site, find_site(settings, site, f"task {task.id}: "))
        for login in login_sites(task):
            _require_known(settings, task, login.site)
            wanted.add(login)
        if settings.rollout.executor == "ray" and (alone := exclusive_sites(settings, task)):
            site = sort_sites(alone)[0]
            raise SettingsError(
                f"task {task.id}: {site} takes one episode at a time (sites.{site}.isolation), which several "
                "nodes can't ensure",
                hint=f"-s rollout.executor=local, or -s sites.{site}.isolation=parallel where nothing is changed",
            )
    for login in sorted(wanted):
        known, account = find_account(settings, login)
        fault = states.fault(login)
        if fault and known.login == "auto" and not account.storage_state:
            read_password(login, account)
        elif fault:
            raise no_login(settings, login, fault)


def _is_only_name(settings: Settings, task: Task) -> bool:
    """Whether a task's `site` needs no entry: a set-up function or an expert has it, or there is no table at all."""
    is_other = task.site and task.site not in settings.sites and not task.role and "://" in task.start_url
    # Beside a table another name is a mistyped one, whose isolation would silently not apply.
    return bool(is_other) and (not settings.sites or task.site in {*SETUPS.names(), *EXPERTS.names()})


def _require_known(settings: Settings, task: Task, site: str) -> None:
    known = {*settings.sites, *WebArenaSite}
    if site not in known:
        place = "site" if task.site else "sites or storage_state"
        there = ", ".join(settings.sites) or "none: give -c FILE with a table sites"
        if task.site in {*SETUPS.names(), *EXPERTS.names()}:
            there += f"; with {task.site}'s set-up function or expert alone a task has a complete start_url and no role"
        raise UsageError(f"task {task.id}: {place}: there is no site {site!r}", hint=f"the sites are {there}")


async def log_in_to_sites(settings: Settings, tasks: Iterable[Task]) -> tuple[Login, ...]:
    """Ensure that all logins of tasks are valid; return the logins that were renewed.

    Raises `MissingStageError` for one that requires `webgym login`, `BoundaryError` if a site can't be reached or
    rejects the login, `UsageError` if two logins conflict.
    """
    states, wanted = LoginStore.of(settings), {login_sites(task) for task in tasks}
    needed = sorted(set(chain.from_iterable(wanted)))
    if not needed:
        return ()
    async with open_login_manager(settings) as manager:
        entered = [login for login in needed if await renew_login(settings, states, manager, login)]
    for logins in sorted(wanted - {()}):
        states.join(logins)
    return tuple(entered)


def map_isolation(settings: Settings, tasks: Iterable[Task]) -> dict[str, Isolation]:
    """Return the isolation of the tasks' sites."""
    sites = sort_sites(chain.from_iterable(map(task_sites, tasks)))
    return {site: settings.sites.get(site, _ABSENT).isolation for site in sites}


def exclusive_sites(settings: Settings, task: Task) -> frozenset[str]:
    """Return the sites on which no other episode may run together with this task."""
    return frozenset(site for site in task_sites(task) if not settings.sites.get(site, _ABSENT).is_shared)


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
