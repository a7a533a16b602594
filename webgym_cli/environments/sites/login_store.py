"""Stored logins of WebArena's sites: Playwright storage states, one file per site, readable by their owner only."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from webgym_cli.config.webarena import WebArenaSettings
from webgym_cli.environments.fixture_sites.registry import HOSTS
from webgym_cli.errors import StoreError, UsageError
from webgym_cli.records.task import Task
from webgym_cli.records.webarena import WebArenaSite
from webgym_cli.util.files import read_json, write_atomic
from webgym_cli.venvs.locate import role_home

_END = "_state.json"
_PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class LoginStore:
    """Logins in one folder."""

    folder: Path
    max_age: float
    """Age in seconds from which a login is expired."""

    @classmethod
    def of(cls, settings: WebArenaSettings) -> LoginStore:
        """Return the store of the settings."""
        named = settings.auth_folder
        folder = Path(named).expanduser().absolute() if named else role_home() / "webarena"
        return cls(folder, settings.login_hours * 3600)

    def path(self, sites: Sequence[WebArenaSite]) -> Path:
        """Return the file of one site's login, or of several sites' merged logins."""
        return self.folder / f"{'.'.join(sites)}{_END}"

    def fault(self, site: WebArenaSite) -> str:
        """Return the problem of a login according to its file: `missing`, `unreadable`, or `expired`; else empty."""
        path = self.path((site,))
        if not path.is_file():
            return "missing"
        try:
            state = read_json(path)
        except StoreError:
            return "unreadable"
        if not isinstance(state, dict) or not isinstance(state.get("cookies"), list):
            return "unreadable"
        age = time.time() - path.stat().st_mtime
        return f"expired ({age / 3600:.1f} hours old)" if age > self.max_age else ""

    def save(self, site: WebArenaSite, state: dict[str, Any]) -> None:
        """Store a login. Raises `StoreError`."""
        self._write(self.path((site,)), state)

    def join(self, sites: Sequence[WebArenaSite]) -> Path:
        """Return the file with the merged logins of these sites, updated if it is older than one of them.

        Raises `StoreError` if one can't be read, `UsageError` if two logins conflict.
        """
        path, parts = self.path(sites), [self.path((site,)) for site in sites]
        if len(sites) > 1 and not _is_newest(path, parts):
            self._write(path, _merge(dict(zip(sites, map(read_json, parts), strict=True))))
        return path

    @staticmethod
    def _write(path: Path, state: dict[str, Any]) -> None:
        write_atomic(path, json.dumps(state, indent=2, ensure_ascii=False) + "\n", mode=_PRIVATE)


def is_fixture(task: Task) -> bool:
    """Whether a WebArena task starts on the fixture sites, which the running process serves."""
    starts = task.extra.get("start_urls") or [task.start_url]
    return task.environment == "webarena" and all(urlsplit(str(url)).hostname in HOSTS for url in starts)


def task_sites(task: Task) -> tuple[WebArenaSite, ...]:
    """Return the sites of a WebArena task, in the order of `WebArenaSite`; empty for other tasks.

    The fixture sites are not included, because each episode has its own. Raises `UsageError` for an unknown site.
    """
    if task.environment != "webarena" or is_fixture(task):
        return ()
    return sort_sites(_list_known(task, "sites", task.extra.get("sites") or ()))


def login_sites(task: Task) -> tuple[WebArenaSite, ...]:
    """Return the sites that a task starts logged in to, from the name of its `storage_state`; empty without one.

    Raises `UsageError` for a state that is not named after sites.
    """
    known = task.environment == "webarena" and not is_fixture(task)
    state = task.extra.get("storage_state") if known else None
    if not state:
        return ()
    name = Path(str(state)).name
    if not name.endswith(_END):
        raise UsageError(f"task {task.id}: storage_state: {name!r} is not named like shopping{_END}")
    return _list_known(task, "storage_state", name.removesuffix(_END).split("."))


def sort_sites(sites: Iterable[WebArenaSite]) -> tuple[WebArenaSite, ...]:
    """Return the distinct sites in the global locking order."""
    wanted = set(sites)
    return tuple(site for site in WebArenaSite if site in wanted)


def _list_known(task: Task, place: str, names: Iterable[object]) -> tuple[WebArenaSite, ...]:
    logins = []
    for name in names:
        if name not in list(WebArenaSite):
            hint = f"the sites are {', '.join(WebArenaSite)}"
            raise UsageError(f"task {task.id}: {place}: there is no site {name!r}", hint=hint)
        logins.append(WebArenaSite(str(name)))
    return tuple(logins)


def _is_newest(path: Path, parts: Iterable[Path]) -> bool:
    if not path.is_file():
        return False
    written_at = path.stat().st_mtime_ns
    return all(part.is_file() and part.stat().st_mtime_ns < written_at for part in parts)


def _merge(states: dict[WebArenaSite, Any]) -> dict[str, Any]:
    """Return the merged logins. Raises `UsageError` if two sites of one host use a cookie with the same name."""
    cookies: dict[tuple[str, str, str], tuple[WebArenaSite, Any]] = {}
    origins: dict[str, Any] = {}
    for site, state in states.items():
        for cookie in state.get("cookies", ()):
            key = (cookie["name"], cookie["domain"], cookie["path"])
            other, known = cookies.setdefault(key, (site, cookie))
            if known["value"] != cookie["value"]:
                raise UsageError(
                    f"{other} and {site} keep their logins in the same cookie {key[0]!r} of the host {key[1]}",
                    hint=f"give them different host names: webarena.{other}.url and webarena.{site}.url",
                )
        origins |= {origin["origin"]: origin for origin in state.get("origins", ())}
    return {"cookies": [cookie for _, cookie in cookies.values()], "origins": list(origins.values())}
