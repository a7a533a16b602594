"""Stored logins of sites: Playwright storage states, one file per login, readable by their owner only."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from webgym_cli.config.model import Settings
from webgym_cli.config.sites import SiteSettings
from webgym_cli.environments.fixture_hosts import SITE_HOSTS
from webgym_cli.environments.sites.accounts import Login
from webgym_cli.errors import StoreError, UsageError
from webgym_cli.records.task import Task
from webgym_cli.util.files import read_json, write_atomic
from webgym_cli.venvs.locate import role_home

_END = "_state.json"
_NO_STATE = (
    "no storage state of Playwright: its cookies have name, value, domain, path, and sameSite (Strict, Lax, None)"
)
_COOKIE = ("name", "value", "domain", "path")
_SAME_SITE = ("Strict", "Lax", "None")
_PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class LoginStore:
    """Logins in one folder."""

    folder: Path
    sites: Mapping[str, SiteSettings]
    """Settings of the sites by name."""

    @classmethod
    def of(cls, settings: Settings) -> LoginStore:
        """Return the store of the settings."""
        named = settings.browser.auth_folder
        folder = Path(named).expanduser().absolute() if named else role_home() / "logins"
        return cls(folder, settings.sites)

    def path(self, logins: Sequence[str]) -> Path:
        """Return the file of one login, or of several merged ones."""
        given = self._given(Login(logins[0])) if len(logins) == 1 else ""
        return Path(given).expanduser().absolute() if given else self.folder / f"{'.'.join(logins)}{_END}"

    def fault(self, login: str) -> str:
        """Return the problem of a login according to its file: `missing`, `expired`, or of another form; else empty."""
        path = self.path((login,))
        if not path.is_file():
            return "missing"
        try:
            state = read_json(path)
        except StoreError:
            return _NO_STATE
        cookies = state.get("cookies") if isinstance(state, dict) else None
        if not isinstance(cookies, list) or not all(map(_is_cookie, cookies)):
            return _NO_STATE
        age, known = time.time() - path.stat().st_mtime, self.sites.get(Login(login).site, SiteSettings())
        is_old = age > known.login_hours * 3600 and not self._given(Login(login))
        return f"expired ({age / 3600:.1f} hours old)" if is_old else ""

    def _given(self, login: Login) -> str:
        """Return the file of a login that the settings name, which webgym only reads; else empty."""
        account = self.sites.get(login.site, SiteSettings()).accounts.get(login.role)
        return account.storage_state if account else ""

    def save(self, login: str, state: dict[str, Any]) -> None:
        """Store a login. Raises `StoreError`."""
        self._write(self.path((login,)), state)

    def join(self, logins: Sequence[str]) -> Path:
        """Return the file with these merged logins, updated if it is older than one of them.

        Raises `StoreError` if one can't be read, `UsageError` if two logins conflict.
        """
        path, parts = self.path(logins), [self.path((login,)) for login in logins]
        if len(logins) > 1 and not _is_newest(path, parts):
            self._write(path, _merge(dict(zip(logins, map(read_json, parts), strict=True))))
        return path

    @staticmethod
    def _write(path: Path, state: dict[str, Any]) -> None:
        write_atomic(path, json.dumps(state, indent=2, ensure_ascii=False) + "\n", mode=_PRIVATE)


def task_sites(task: Task) -> tuple[str, ...]:
    """Return the sites of a task, in the locking order: its `site`, or those of a WebArena task."""
    if task.site:
        return (task.site,)
    if task.environment != "webarena" or is_fixture(task):
        return ()
    return sort_sites(map(str, task.extra.get("sites") or ()))


def login_sites(task: Task) -> tuple[Login, ...]:
    """Return the logins with which a task starts: of its `role`, or of a WebArena task's `storage_state`.

    Raises `UsageError` for a state that is not named after sites, and for a role without a site.
    """
    if task.site and task.role:
        return (Login.of(task.site, task.role),)
    if task.role:
        raise UsageError(f"task {task.id}: role: {task.role!r} is the role of an account, and the task has no site")
    is_known = task.environment == "webarena" and not is_fixture(task)
    state = task.extra.get("storage_state") if is_known else None
    if not state:
        return ()
    name = Path(str(state)).name
    if not name.endswith(_END):
        raise UsageError(f"task {task.id}: storage_state: {name!r} is not named like shopping{_END}")
    return tuple(map(Login, name.removesuffix(_END).split(".")))


def sort_sites(sites: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct sites in the global locking order."""
    return tuple(sorted(set(sites)))


def is_fixture(task: Task) -> bool:
    """Whether a WebArena task starts on the fixture sites, which the running process serves."""
    starts = task.extra.get("start_urls") or [task.start_url]
    return task.environment == "webarena" and all(urlsplit(str(url)).hostname in SITE_HOSTS for url in starts)


def _is_cookie(cookie: object) -> bool:
    if not isinstance(cookie, dict) or cookie.get("sameSite", "Lax") not in _SAME_SITE:
        return False
    return all(isinstance(cookie.get(name), str) for name in _COOKIE)


def _is_newest(path: Path, parts: Iterable[Path]) -> bool:
    if not path.is_file():
        return False
    written_at = path.stat().st_mtime_ns
    return all(part.is_file() and part.stat().st_mtime_ns < written_at for part in parts)


def _merge(states: dict[str, Any]) -> dict[str, Any]:
    """Return the merged logins. Raises `UsageError` if two sites of one host use a cookie with the same name."""
    cookies: dict[tuple[str, str, str], tuple[str, Any]] = {}
    origins: dict[str, Any] = {}
    for site, state in states.items():
        for cookie in state.get("cookies", ()):
            key = (cookie["name"], cookie["domain"], cookie["path"])
            other, known = cookies.setdefault(key, (site, cookie))
            if known["value"] != cookie["value"]:
                raise UsageError(
                    f"{other} and {site} keep their logins in the same cookie {key[0]!r} of the host {key[1]}",
                    hint=f"give them different host names: {Login(other).site_key}.url and {Login(site).site_key}.url",
                )
        origins |= {origin["origin"]: origin for origin in state.get("origins", ())}
    return {"cookies": [cookie for _, cookie in cookies.values()], "origins": list(origins.values())}
